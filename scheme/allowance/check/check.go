// Package check decides whether a transfer of a float may be signed: money of an owner's account, which their
// ERC-20 allowance lets the agent take, to the agent's own account.
//
// What must stay true: what lies at the agent's account by the chain, with what was taken and is on its way
// by sealed rows, is at most the owner's float and what this process has signed for. Where one held payment
// costs more than the float, it is at most that price, and the owner's limit for one call.
package check

import (
	"context"
	"encoding/json"
	"time"

	"x402-wallet/budget"
	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Check is a signing.Check.
type Check struct {
	// Rules are, by network, the owner's account and what may be taken of it.
	Rules map[string]x402.AllowanceRule
	// Account asks the chain what an account has of a token, and how many transactions it made.
	Account func(ctx context.Context, network, token, account string) (balance money.Amount, count uint64,
		err error)
}

// Encode is the form that Check reads.
func Encode(p x402.Pull) ([]byte, error) { return json.Marshal(p) }

// pull is a signing.Message.
type pull struct {
	signing.Basis
	x402.Pull
	payment history.Payment
	asset   x402.AssetInfo
	account string       // the agent's, as the wallet writes it: the message may have it in other letters
	most    money.Amount // that may lie at the agent's account
	balance money.Amount // that lies there, by the chain
	count   uint64       // of the account's transactions, by the chain
}

func (c Check) Read(ctx context.Context, q signing.Question) (signing.Message, error) {
	var got x402.Pull
	err := x402.DecodeStrict(q.Message, message.MaxPayload, &got)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	p := q.Payment
	chain, _ := x402.ChainID(p.Network)
	earliest, latest := p.Created.Add(-time.Minute), q.Now.Add(budget.ClockTolerance)
	err = signing.Compare(
		signing.Is("chain", got.Network == p.Network && got.ChainID == chain && chain != 0),
		signing.Is("asset", signing.SameAddress(got.Token, q.Asset.Address)),
		signing.Is("owner", signing.SameAddress(got.Owner, p.Source)),
		signing.Is("agent", signing.SameAddress(got.Agent, q.Account.EVM) &&
			signing.SameAddress(p.PayTo, q.Account.EVM)),
		signing.Is("amount", got.Amount == p.Amount),
		signing.Is("time", !got.Made.Before(earliest) && !got.Made.After(latest)))
	if err != nil {
		return nil, err
	}
	rule, named := c.Rules[p.Network]
	switch {
	case !named || !q.Account.IsOwn() || !signing.SameAddress(rule.Owner, p.Source):
		return nil, signing.Refuse("the owner's rules name no such account to take a float from")
	case got.MaxCost().Cmp(rule.MaxGas) > 0:
		return nil, signing.Refuse("its gas may cost %s wei, and max_gas allows %s", got.MaxCost(),
			rule.MaxGas)
	}
	m := pull{Pull: got, payment: p, asset: q.Asset, account: q.Account.EVM,
		Basis: signing.Basis{Asks: signing.Terms{IsTransfer: true}, Bytes: q.Message}}
	m.most, err = most(ctx, q, rule)
	if err != nil {
		return nil, err
	}
	m.balance, m.count, err = c.Account(ctx, p.Network, q.Asset.Address, q.Account.EVM)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// most is what may lie at the agent's account: a float, or what is held of it where that is more, but not
// more than one call may cost.
func most(ctx context.Context, q signing.Question, rule x402.AllowanceRule) (most money.Amount, err error) {
	held, err := q.Ledger.HeldOn(ctx, q.Payment.Network, q.Payment.PayTo)
	if err != nil {
		return most, err
	}
	most = held[q.Payment.Asset]
	if call := q.Asset.Units(q.PerCall); most.Cmp(call) > 0 {
		most = call
	}
	if float := q.Asset.Units(rule.Float); most.Cmp(float) < 0 {
		most = float
	}
	return most, nil
}

// underWay is a transfer that was signed.
type underWay struct {
	Token  string       `json:"token"`
	Nonce  uint64       `json:"nonce"` // of the account
	Amount money.Amount `json:"amount"`
}

// Bound implements signing.Bounded. The sealed fact is the list of transfers of the account that the chain
// did not show as made yet.
func (m pull) Bound(_ context.Context, s signing.Sealed) (*history.Fact, error) {
	name := "floats of " + m.account + " on " + m.Network
	sealed, err := s.Recall(name)
	if err != nil {
		return nil, err
	}
	var all, open []underWay
	if sealed != nil && json.Unmarshal(sealed, &all) != nil {
		return nil, x402.Errorf(x402.LedgerCorrupt, "the sealed floats cannot be read")
	}
	there := m.balance
	for _, u := range append(all, underWay{m.asset.Address, m.Nonce, m.Amount}) {
		if u.Nonce < m.count {
			continue
		}
		open = append(open, u)
		if u.Token == m.asset.Address {
			there, _ = there.Add(u.Amount)
		}
	}
	allowed, _ := m.most.Add(s.Unsettled(m.Network, m.payment.Asset, m.account))
	if there.Cmp(allowed) > 0 {
		return nil,
			signing.Refuse("it takes more than a float, and than what is to be paid: with it %s would "+
				"be at the agent's account, and %s is the most", there, allowed)
	}
	value, err := json.Marshal(open)
	return &history.Fact{Name: name, Value: value}, err
}

func (m pull) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	signature, err := by.SignPull(ctx, wallet.PullTransaction{
		ChainID: m.ChainID, Nonce: m.Nonce, Gas: m.Gas, Tip: m.Tip.Bytes32(), MaxFee: m.MaxFee.Bytes32(),
		Token: m.Token, Owner: m.Owner, Amount: m.Amount.Bytes32(),
	})
	return signature[:], err
}

func (m pull) Signed(signature []byte) (s history.Signed, err error) {
	s.Evidence = message.PullEvidence(m.Pull)
	s.Evidence.Transaction, err = message.PullHash(m.Pull, [65]byte(signature))
	return s, err
}
