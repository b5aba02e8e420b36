package evm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/rpc"
	allowancecheck "x402-wallet/scheme/allowance/check"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// A pull moves a float from an owner's account to the agent's, by transferFrom of the token (ERC-20). It is a
// transaction of the agent's own account, which pays its gas: what is signed has an account nonce, so that of
// all that were ever signed with it only one happens, and bringing the same bytes to the chain again changes
// nothing.

// DraftPull asks the node for what a pull of an amount needs, which simulates it. Errors: NO_DELEGATION where
// config.toml names no owner, DELEGATION_EXHAUSTED where it would fail, INSUFFICIENT_FUNDS where the agent
// cannot pay the gas, POLICY_DENIED where that would be more than the owner allows, RPC_ERROR.
func (e *Exact) DraftPull(ctx context.Context, asset x402.AssetInfo, amount money.Amount) (p x402.Pull,
	err error) {
	n, err := e.Node(asset.Network)
	if err != nil {
		return p, err
	}
	rule, named := e.allowances[asset.Network]
	if !named {
		return p, x402.Errorf(x402.NoDelegation, "no owner's account is named on %s",
			x402.Title(asset.Network))
	}
	self, err := e.Self()
	if err != nil {
		return p, err
	}
	owner, errOwner := message.ParseAddress(rule.Owner)
	token, errToken := message.ParseAddress(asset.Address)
	if err := errors.Join(errOwner, errToken); err != nil {
		return p, Internal("the owner's or the token's address", err)
	}
	p = x402.Pull{Network: n.Network, Token: token.Hex(), Owner: owner.Hex(), Agent: self.Hex(),
		Amount: amount, ChainID: n.ChainID, Made: e.now().UTC().Truncate(time.Second)}
	tx, err := message.PullTransaction(p)
	if err != nil {
		return p, err
	}
	var waiting uint64
	var coins money.Amount
	err = Together(
		func() (err error) { p.Nonce, err = n.TransactionCount(ctx, p.Agent, Latest); return err },
		func() (err error) { waiting, err = n.TransactionCount(ctx, p.Agent, Pending); return err },
		func() (err error) { coins, err = n.Coins(ctx, self, Latest); return err },
		func() (err error) { p.MaxFee, p.Tip, err = n.Fees(ctx); return err },
		func() (err error) { p.Gas, err = n.EstimateGas(ctx, p.Agent, p.Token, tx.Data); return err })
	cost := p.MaxCost()
	about := func(err *x402.Error) error {
		return err.WithDetail("network", p.Network).WithDetail("owner", p.Owner).WithDetail("agent", p.Agent).
			WithDetail("gasWei", cost).WithDetail("agentWei", coins)
	}
	switch {
	case rpc.Refused(err):
		return p, about(x402.Errorf(x402.DelegationExhausted, "the owner's account on %s does not let %s %s "+
			"be taken", x402.Title(p.Network), amount.Units(asset.Decimals), asset.Symbol).
			WithDetail("reason", x402.Brief(err.Error())))
	case err != nil:
		return p, err
	case waiting > p.Nonce:
		return p, about(x402.Errorf(x402.CheckFailed, "another transaction of the agent's account on %s is "+
			"under way", x402.Title(p.Network)).WithHint("make the same call again in a minute"))
	case cost.Cmp(rule.MaxGas) > 0:
		return p, about(x402.Errorf(x402.PolicyDenied, "moving a float would cost up to %s of gas on %s, "+
			"and max_gas allows %s", InCoins(cost), x402.Title(p.Network), InCoins(rule.MaxGas)))
	case coins.Cmp(cost) < 0:
		return p, about(x402.Errorf(x402.InsufficientFunds, "the agent's account on %s has %s, and moving a "+
			"float to it takes up to %s of gas", x402.Title(p.Network), InCoins(coins), InCoins(cost)))
	}
	return p, nil
}

func InCoins(wei money.Amount) string {
	const decimals = 18
	return wei.Units(decimals) + " of the network's coin"
}

// pullPayload is a signed pull as it is kept.
type pullPayload struct {
	Transaction hexutil.Bytes `json:"transaction"`
}

// SignPull signs a pull for a payment of the ledger. The signer is asked once. Errors: the signer's own;
// INTERNAL when the signature is not the agent's.
func (e *Exact) SignPull(ctx context.Context, payment string, p x402.Pull) (a onchain.Authorization,
	err error) {
	tx, err := message.PullTransaction(p)
	if err != nil {
		return a, err
	}
	unsigned, err := tx.Encode()
	if err != nil {
		return a, Internal("encoding the transaction", err)
	}
	object, err := allowancecheck.Encode(p)
	if err != nil {
		return a, Internal("encoding the pull", err)
	}
	signatures, err := e.AskSigner(ctx, payment, object, crypto.Keccak256Hash(unsigned))
	if err != nil {
		return a, err
	}
	signed, hash, err := tx.Signed(signatures[0], e.Address())
	if err != nil {
		return a, err
	}
	a.Payload, err = json.Marshal(pullPayload{signed})
	if err != nil {
		return a, Internal("encoding the transaction", err)
	}
	a.Evidence = message.PullEvidence(p)
	a.Evidence.Transaction = hash
	return a, nil
}

// AccountState reads what an account has of a token, and how many transactions it made. Errors: RPC_ERROR.
func (e *Exact) AccountState(ctx context.Context, network, token, account string) (balance money.Amount,
	count uint64, err error) {
	n, err := e.Node(network)
	if err != nil {
		return balance, 0, err
	}
	of, errAccount := message.ParseAddress(account)
	at, errToken := message.ParseAddress(token)
	if err := errors.Join(errAccount, errToken); err != nil {
		return balance, 0, Internal("the account's or the token's address", err)
	}
	// the count first: a transaction that lands in between is not counted, and its money is
	count, err = n.TransactionCount(ctx, account, Latest)
	if err != nil {
		return balance, 0, err
	}
	word, err := n.Read(ctx, at, Latest, SelectBalanceOf, message.Word(of))
	return message.AmountOf(word), count, err
}

// SendPull brings a signed pull to the chain. It may be repeated: the chain takes a transaction once. A node
// that does not want it is no error, because it says so of one that it has, too: Status tells.
func (e *Exact) SendPull(ctx context.Context, network string, payload []byte) error {
	n, err := e.Node(network)
	if err != nil {
		return err
	}
	var signed pullPayload
	if err := x402.DecodeStrict(payload, message.MaxPayload, &signed); err != nil ||
		len(signed.Transaction) == 0 {
		return Internal("the pull's stored transaction cannot be read", err)
	}
	var hash string
	err = n.Call(ctx, &hash, "eth_sendRawTransaction", signed.Transaction)
	if rpc.Refused(err) {
		return nil
	}
	return err
}

// pullStatus is Status of a pull:
//
//	its receipt            | the account's nonce            | Status
//	-----------------------+--------------------------------+--------------------------------
//	success, and the exact |                                | Settled
//	Transfer               |                                |
//	success, without it    |                                | Open, with a note: the node
//	                       |                                | contradicts itself
//	failed, finalized      |                                | Expired
//	failed                 |                                | Open
//	none                   | passed at the finalized block, | Expired
//	                       | and still no receipt           |
//	none                   | otherwise                      | Open
func (e *Exact) pullStatus(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	n, err := e.Node(evidence.Network)
	if err != nil {
		return x402.Status{}, err
	}
	p, err := readPull(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	status, found, err := n.mined(ctx, p)
	if found || err != nil {
		return status, err
	}
	final, err := n.Block(ctx, Finalized)
	if err != nil {
		return x402.Status{}, err
	}
	count, err := n.TransactionCount(ctx, p.Payee.Hex(), final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	if count <= p.accountNonce {
		return x402.Status{Block: uint64(*final.Number), At: final.Time(), Unused: true,
			Note: fmt.Sprintf("not in a block yet; the account's next nonce is %d", count)}, nil
	}
	// the nonce was used before the block that we looked at: now its receipt is there, or never
	status, found, err = n.mined(ctx, p)
	if found || err != nil {
		return status, err
	}
	return x402.Status{State: x402.Expired, Block: uint64(*final.Number), At: final.Time(),
		Note: fmt.Sprintf("another transaction used the account's nonce %d", p.accountNonce)}, nil
}

// pull is a pull that the chain is asked about.
type pull struct {
	Authorization // whose payer is the owner, and payee the agent
	hash          common.Hash
	accountNonce  uint64
}

func readPull(evidence x402.Evidence) (p pull, err error) {
	var errs [5]error
	p.Token, errs[0] = message.ParseAddress(evidence.Asset)
	p.Payee, errs[1] = message.ParseAddress(evidence.Payer)
	p.Payer, errs[2] = message.ParseAddress(evidence.Source)
	p.accountNonce, errs[3] = strconv.ParseUint(evidence.Nonce, 10, 64)
	errs[4] = message.DecodeHex(p.hash[:], evidence.Transaction)
	p.Evidence = evidence
	if err := errors.Join(errs[:]...); err != nil {
		return p, Internal("the pull's stored evidence cannot be read", err)
	}
	return p, nil
}

func (n *Node) mined(ctx context.Context, p pull) (status x402.Status, found bool, err error) {
	var r *struct {
		Receipt
		BlockNumber *hexutil.Uint64 `json:"blockNumber"`
		GasUsed     hexutil.Uint64  `json:"gasUsed"`
		GasPrice    *hexutil.Big    `json:"effectiveGasPrice"`
	}
	if err := n.Call(ctx, &r, "eth_getTransactionReceipt", p.hash.Hex()); err != nil || r == nil {
		return status, false, err
	}
	if r.TransactionHash != p.hash || r.Status == nil || r.BlockNumber == nil {
		return status, false, n.Failed("eth_getTransactionReceipt",
			errors.New("another transaction's receipt"))
	}
	status = x402.Status{Transaction: p.hash.Hex(), Block: uint64(*r.BlockNumber)}
	if r.GasPrice != nil {
		if price, fits := message.AmountOfBig(r.GasPrice.ToInt()); fits {
			status.Note = "gas: " + InCoins(price.Times(uint64(r.GasUsed)))
		}
	}
	switch {
	case *r.Status == 1 && slices.ContainsFunc(r.Logs, p.IsExact):
		status.State = x402.Settled
		return status, true, nil
	case *r.Status == 1:
		status.Note = "it succeeded, but shows no such transfer: the node contradicts itself"
		return status, true, nil
	}
	status, err = n.statusOfVoid(ctx, LogEntry{TransactionHash: p.hash, BlockNumber: *r.BlockNumber},
		"the transfer failed")
	return status, true, err
}
