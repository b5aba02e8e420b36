package svm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/chain/svm/decode"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// What only the owner of a token account can sign is built here, for the owner's own key or another
// signer of theirs: an ApproveChecked or a Revoke, alone in its transaction, whose fee the owner
// pays.

// SPL Token instructions, the same in Token-2022 (spl-token/interface/src/instruction.rs).
const (
	opRevoke         = 5
	opApproveChecked = 13
)

func (e *Exact) AssociatedAccount(owner string, asset x402.AssetInfo) (string, error) {
	return decode.AssociatedAccount(owner, asset.Address, asset.Token2022)
}

// Approve lets this wallet's agent spend up to amount of asset from a token account. A delegate
// that is there already is replaced: an account has one. Errors: as Delegation; DELEGATE_MISMATCH
// when the account holds another token or is frozen.
func (e *Exact) Approve(ctx context.Context, network, account string, asset x402.AssetInfo,
	amount money.Amount) (onchain.DelegationChange, error) {
	agent, err := e.self()
	if err != nil {
		return onchain.DelegationChange{}, err
	}
	units, fits := amount.Uint64()
	if !fits || units == 0 {
		return onchain.DelegationChange{}, x402.Errorf(x402.InvalidArgument,
			"the amount must be from 1 to 18446744073709551615 atomic units")
	}
	change := func(t *tokenAccount, c *onchain.DelegationChange) (solana.Instruction, error) {
		mint, err := parseKey(asset.Address)
		switch {
		case err != nil || asset.Network != network || t.mint != mint ||
			t.program != programOf(asset.Token2022):
			return nil, mismatch(t.address, "mint", "the token account %s does not hold %s",
				t.address, asset.Symbol)
		case t.frozen:
			return nil, frozen(t.address)
		}
		c.Delegate, c.Amount, c.Decimals = agent.String(), units, asset.Decimals
		data := append(binary.LittleEndian.AppendUint64([]byte{opApproveChecked}, units), asset.Decimals)
		accounts := solana.AccountMetaSlice{solana.Meta(t.address).WRITE(), solana.Meta(t.mint),
			solana.Meta(agent), solana.Meta(t.owner).SIGNER()}
		return solana.NewInstruction(t.program, accounts, data), nil
	}
	return e.change(ctx, network, account, change)
}

// Revoke takes back whatever delegation a token account has.
func (e *Exact) Revoke(ctx context.Context, network, account string) (onchain.DelegationChange, error) {
	change := func(t *tokenAccount, _ *onchain.DelegationChange) (solana.Instruction, error) {
		if !t.hasDelegate {
			return nil, noDelegation(t.address, "none",
				"the token account %s delegates to nobody", t.address).WithHint("there is nothing to revoke").
				WithNext(x402.Next{Do: x402.GiveUp, Why: "there is nothing to revoke"})
		}
		accounts := solana.AccountMetaSlice{solana.Meta(t.address).WRITE(), solana.Meta(t.owner).SIGNER()}
		return solana.NewInstruction(t.program, accounts, []byte{opRevoke}), nil
	}
	return e.change(ctx, network, account, change)
}

// instructionFor is what the owner of a token account shall sign; it completes the change.
type instructionFor func(t *tokenAccount, c *onchain.DelegationChange) (solana.Instruction, error)

func (e *Exact) change(ctx context.Context, network, address string, instruction instructionFor) (
	c onchain.DelegationChange, err error) {
	at, err := parseKey(address)
	if err != nil {
		return c, badTokenAccount(address, err)
	}
	n, err := e.node(network)
	if err != nil {
		return c, err
	}
	t, _, err := n.tokenAccount(ctx, at)
	if err != nil {
		return c, err
	}
	if t == nil {
		return c, x402.Errorf(x402.InvalidArgument, "there is no token account at %s", at)
	}
	c = onchain.DelegationChange{Network: network, Account: address, Owner: t.owner.String(),
		Mint: t.mint.String(), Program: t.program.String()}
	what, err := instruction(t, &c)
	if err != nil {
		return c, err
	}
	blockhash, _, _, err := n.latestBlockhash(ctx, finalized) // signing it by hand takes a while
	if err != nil {
		return c, err
	}
	c.Message, err = compile(t.owner, blockhash, what)
	return c, err
}

// Simulate asks the node whether a change would succeed, before anybody signs it. Errors:
// CHECK_FAILED with the node's reason.
func (e *Exact) Simulate(ctx context.Context, c onchain.DelegationChange) error {
	n, err := e.node(c.Network)
	if err != nil {
		return err
	}
	var answer struct {
		Value *struct{ Err json.RawMessage }
	}
	const method = "simulateTransaction"
	err = n.Call(ctx, &answer, method, c.Transaction([64]byte{}), asBase64)
	if err != nil {
		return err
	}
	if answer.Value == nil {
		return n.Failed(method, errors.New("neither true nor false"))
	}
	if why := string(answer.Value.Err); why != "" && why != "null" {
		return x402.Errorf(x402.CheckFailed, "the transaction would fail").
			WithDetail("reason", x402.Brief(why)).
			WithHint("the token account's owner pays the fee and needs some SOL: %s", c.Owner)
	}
	return nil
}

const (
	confirmTimeout = time.Minute            // how long Send waits: a blockhash's life on an ordinary day
	pollInterval   = 400 * time.Millisecond // how often it asks
)

// Send brings a signed change to the chain and waits until it is confirmed. An error names the
// transaction where it may have landed.
func (e *Exact) Send(ctx context.Context, c onchain.DelegationChange, signature [64]byte) (id string,
	err error) {
	n, err := e.node(c.Network)
	if err != nil {
		return "", err
	}
	id = solana.Signature(signature).String()
	var echoed string // the id that we know already
	err = n.Call(ctx, &echoed, "sendTransaction", c.Transaction(signature),
		map[string]any{"encoding": "base64", "preflightCommitment": confirmed})
	if err != nil {
		return id, x402.AsError(err).WithDetail("transaction", id)
	}
	for end := time.Now().Add(confirmTimeout); ; {
		var answer struct {
			Value []*struct {
				Err                json.RawMessage
				ConfirmationStatus string
			}
		}
		err := n.Call(ctx, &answer, "getSignatureStatuses", []string{id})
		if err == nil && len(answer.Value) == 1 && answer.Value[0] != nil {
			switch s := answer.Value[0]; {
			case len(s.Err) > 0 && string(s.Err) != "null":
				return id, x402.Errorf(x402.CheckFailed, "the transaction failed").
					WithDetail("reason", x402.Brief(string(s.Err))).WithDetail("transaction", id)
			case s.ConfirmationStatus == confirmed || s.ConfirmationStatus == finalized:
				return id, nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
			if time.Now().Before(end) {
				continue
			}
		}
		return id, x402.Errorf(x402.OutcomeUnknown, "the transaction was sent and is not confirmed yet").
			WithDetail("transaction", id).
			WithHint("look at the delegation in a minute: x402-wallet delegation show")
	}
}
