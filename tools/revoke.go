package tools

import (
	"context"
	"strings"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Change is a change of a delegation that only the token account's owner can sign: svm.Change.
type Change struct {
	Network, Account, Owner, Mint, Program string
	Delegate                               string // "": the delegation is revoked
	Amount                                 uint64
	Decimals                               uint8
	Message                                []byte
}

// Owners builds transactions that a token account's owner signs, and brings them to the chain.
type Owners interface {
	// AccountOf is the owner's associated token account.
	AccountOf(owner string, asset x402.AssetInfo) (string, error)
	Approve(ctx context.Context, network, account string, asset x402.AssetInfo, amount money.Amount) (Change,
		error)
	Revoke(ctx context.Context, network, account string) (Change, error)
	Simulate(ctx context.Context, c Change) error
	// Send waits until the transaction is confirmed, and names it.
	Send(ctx context.Context, c Change, signature [64]byte) (string, error)
	// Transaction is base64, with a signature or with none.
	Transaction(c Change, signature [64]byte) string
}

// RevokeIn is what x402_revoke_delegation takes.
type RevokeIn struct {
	TokenAccount string `json:"tokenAccount,omitempty" jsonschema:"as in x402_check_delegation"`
	Freeze       bool   `json:"freeze,omitempty" jsonschema:"true: this wallet stops paying from that account at once, until its person lifts that"`
}

// RevokeOut is its answer.
type RevokeOut struct {
	Network      string `json:"network"`
	TokenAccount string `json:"tokenAccount"`
	Owner        string `json:"owner"`
	Transaction  string `json:"transaction"` // base64, to be signed by Owner, who pays its fee
	Command      string `json:"command"`     // for the owner
	Frozen       bool   `json:"frozen"`
}

const revokeDescription = `Prepare the end of a delegation: an unsigned transaction and the command for the owner, who alone can sign. With freeze, spending from that account stops here at once.`

// Revoke prepares a revocation. Its error is an *x402.Error.
func (w *Wallet) Revoke(ctx context.Context, in RevokeIn) (RevokeOut, error) {
	ctx, cancel := context.WithTimeout(ctx, chainPatience)
	defer cancel()
	network, account, err := w.delegationAsked(ctx, DelegationIn{TokenAccount: in.TokenAccount})
	if err != nil {
		return RevokeOut{}, withCode(x402.CheckFailed, "the delegation could not be looked up", err)
	}
	if in.Freeze {
		// first, whatever the node says: for every network, as the account's owner is the same
		// there
		if err := w.freeze(ctx, account); err != nil {
			return RevokeOut{}, err
		}
	}
	c, err := w.Owners.Revoke(ctx, network, account)
	if err != nil {
		return RevokeOut{}, withCode(x402.CheckFailed, "the transaction could not be made",
			err).WithDetail("frozen", in.Freeze)
	}
	return RevokeOut{
		Network: c.Network, TokenAccount: c.Account, Owner: c.Owner, Transaction: w.Owners.Transaction(c,
			[64]byte{}), Frozen: in.Freeze,
		Command: "x402-wallet delegation revoke --owner-keypair FILE --network " + c.Network +
			" --token-account " + c.Account,
	}, nil
}

// freeze stops payments from a token account. A text that is no address freezes nothing.
func (w *Wallet) freeze(ctx context.Context, account string) error {
	const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	if len(account) < 32 || len(account) > 44 || strings.Trim(account, base58) != "" { // base58 of 32 bytes
		return x402.Errorf(x402.InvalidArgument, "tokenAccount is not a Solana address")
	}
	for _, network := range w.Networks {
		if !x402.IsSolana(network) {
			continue
		}
		if err := w.Store.Freeze(ctx, history.Freeze{Network: network, Account: account, By: "agent",
			Why: "its delegation is to be revoked"}); err != nil {
			return err
		}
	}
	_ = w.Engine.Guard.CheckpointIfUnlocked(ctx) // it is frozen all the same
	return nil
}
