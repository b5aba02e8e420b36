package evm

import (
	"context"
	"errors"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// Paying from an owner's own account, so that the chain itself caps the agent: the owner approves the agent's
// address for a sum (ERC-20), and the wallet moves a float from there to the agent's account when a payment
// needs one (pull.go). The payment is then one of the agent's own, which every facilitator takes.

var SelectAllowance = []byte{0xdd, 0x62, 0xed, 0x3e}

// AllowanceOn is how the owner lets the agent spend from their account on a network; nil: not at all.
func (e *Exact) AllowanceOn(network string) *x402.AllowanceRule {
	rule, named := e.allowances[network]
	if !named {
		return nil
	}
	return &rule
}

// ReadAllowance reads what an owner lets this wallet's agent take of an asset. Errors: RPC_ERROR,
// INVALID_ARGUMENT.
func (e *Exact) ReadAllowance(ctx context.Context, network, owner string, asset x402.AssetInfo) (
	a x402.OwnerAllowance, err error) {
	n, err := e.Node(network)
	if err != nil {
		return a, err
	}
	from, err := message.ParseAddress(owner)
	if err != nil {
		return a, x402.Errorf(x402.InvalidArgument, "the owner's address is %w", err)
	}
	return e.allowance(ctx, n, from, asset)
}

// allowance reads at one block: between two, money may move from the owner to the agent, and would be counted
// twice.
func (e *Exact) allowance(ctx context.Context, n *Node, owner common.Address, asset x402.AssetInfo) (
	a x402.OwnerAllowance, err error) {
	self, err := e.Self()
	if err != nil {
		return a, err
	}
	token, err := message.ParseAddress(asset.Address)
	if err != nil || asset.Network != n.Network {
		return a, Internal("an asset of another network, or without an address", err)
	}
	tip, err := n.Block(ctx, Latest)
	if err != nil {
		return a, err
	}
	at := tip.Number.String()
	a = x402.OwnerAllowance{Network: n.Network, Owner: owner.Hex(), Agent: self.Hex(), Asset: token.Hex()}
	word := func(into *money.Amount, selector []byte, args ...[]byte) func() error {
		return func() error {
			word, err := n.Read(ctx, token, at, selector, args...)
			*into = message.AmountOf(word)
			return err
		}
	}
	return a, Together(
		word(&a.Approved, SelectAllowance, message.Word(owner), message.Word(self)),
		word(&a.Balance, SelectBalanceOf, message.Word(owner)),
		word(&a.Float, SelectBalanceOf, message.Word(self)),
		func() (err error) {
			a.Gas, err = n.Coins(ctx, self, at)
			return err
		})
}

// Coins is what an account has of the network's own money, in wei.
func (n *Node) Coins(ctx context.Context, account common.Address, tag string) (money.Amount, error) {
	var wei hexutil.Big
	if err := n.Call(ctx, &wei, "eth_getBalance", account.Hex(), tag); err != nil {
		return money.Amount{}, err
	}
	amount, fits := message.AmountOfBig(wei.ToInt())
	if !fits {
		return amount, n.Failed("eth_getBalance", errors.New("more than there can be"))
	}
	return amount, nil
}

// Together runs several at a time, and returns the first one's error, in their order.
func Together(questions ...func() error) error {
	errs := make([]error, len(questions))
	var wait sync.WaitGroup
	for i, ask := range questions {
		wait.Go(func() { errs[i] = ask() })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// allowanceFunds is Funds of the agent's own account where an owner lets it take more from theirs.
func (e *Exact) allowanceFunds(ctx context.Context, n *Node, rule x402.AllowanceRule, asset x402.AssetInfo) (
	x402.Funds, error) {
	owner, err := message.ParseAddress(rule.Owner)
	if err != nil {
		return x402.Funds{}, Internal("the owner's address", err)
	}
	readAt := e.now()
	a, err := e.allowance(ctx, n, owner, asset)
	if err != nil {
		return x402.Funds{}, err
	}
	free, _ := a.Float.Add(a.Pullable())
	return x402.Funds{Source: a.Agent, Balance: a.Float, Delegated: &free, Free: free, ReadAt: readAt,
		Allowance: &a}, nil
}

// ApproveAllowance lets this wallet's agent take an amount of an owner's asset; 0: nothing any more. It
// replaces what they approved before. The owner signs it and pays its gas.
func (e *Exact) ApproveAllowance(ctx context.Context, a x402.OwnerAllowance, amount money.Amount) (
	onchain.OwnerTransaction, error) {
	agent, err := message.ParseAddress(a.Agent)
	if err != nil {
		return onchain.OwnerTransaction{}, Internal("the agent's address", err)
	}
	does := "let the agent spend"
	if amount.IsZero() {
		does = "let the agent spend nothing"
	}
	return e.Estimated(ctx, onchain.OwnerTransaction{Network: a.Network, From: a.Owner, To: a.Asset,
		Does: does, Data: payload.ApproveData(agent, amount)})
}
