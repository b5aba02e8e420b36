package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// signPull signs a transfer of a float from the owner's account to the agent's, which the ledger has as a
// payment by itself. Its gas is bounded by the owner's rules.
func (s *Server) signPull(ctx context.Context, q Request) ([]byte, error) {
	rules, p, asset, by, err := s.reserved(ctx, q.Payment, x402.Allowance)
	if err != nil {
		return nil, err
	}
	if q.Pull == nil {
		return nil, refuse("it cannot be read")
	}
	got := *q.Pull
	chain, _ := x402.ChainID(p.Network)
	earliest, latest := p.Created.Add(-time.Minute), s.Now().Add(early)
	err = compare([]field{
		{name: "chain", same: got.Network == p.Network && got.ChainID == chain && chain != 0},
		{name: "asset", same: strings.EqualFold(got.Token, asset.Address)},
		{name: "owner", same: strings.EqualFold(got.Owner, p.Source)},
		{name: "agent", same: strings.EqualFold(got.Agent, by.EVM.Address())},
		{name: "amount", same: got.Amount == p.Amount},
		{name: "time", same: !got.Made.Before(earliest) && !got.Made.After(latest)},
	})
	if err != nil {
		return nil, err
	}
	if err := rules.gasAllows(got); err != nil {
		return nil, err
	}
	signature, err := by.EVM.SignPull(ctx, p.ID, got)
	if err != nil {
		return nil, err
	}
	evidence := message.PullEvidence(got)
	evidence.Transaction, err = message.PullHash(got, signature)
	if err != nil {
		return nil, err
	}
	signed, err := s.recorded(ctx, rules, p, history.Signed{Evidence: evidence}, []byte(evidence.Transaction),
		signature[:])
	if errors.Is(err, history.ErrSignedBefore) {
		return nil, x402.Errorf(x402.CheckFailed, "another float is under way with this account nonce")
	}
	return signed, err
}

// gasAllows refuses a pull whose gas may cost more than the owner allows.
func (r Rules) gasAllows(p x402.Pull) error {
	most := r.Allowances[p.Network].MaxGas
	if p.MaxCost().Cmp(most) > 0 {
		return refuse("its gas may cost %s wei, and max_gas allows %s", p.MaxCost(), most)
	}
	return nil
}

// permitPull is what a transfer to the agent's own account, which it is by the way it is signed, has to be:
// from the account that the sealed rules name, and no more than a float, or what is held to be paid where
// that is more. It buys nothing, so that the owner's windows do not count it.
func (r *Recorder) permitPull(ctx context.Context, rules Rules, p history.Payment,
	asset x402.AssetInfo) error {
	rule, named := rules.Allowances[p.Network]
	if !named || !strings.EqualFold(rule.Owner, p.Source) {
		return refuse("the owner's rules name no such account to take a float from")
	}
	held, err := r.Store.HeldOn(ctx, p.Network, p.PayTo)
	if err != nil {
		return err
	}
	most := maxPull(asset, rule, held[p.Asset])
	if p.Amount.Cmp(most) > 0 {
		return refuse("it takes more than a float, and than what is to be paid: %s is the most", most)
	}
	return nil
}

// maxPull is the most that a pull may move: a float, or what is held where that is more.
func maxPull(asset x402.AssetInfo, rule x402.AllowanceRule, held money.Amount) money.Amount {
	most := asset.Units(rule.Float)
	if held.Cmp(most) > 0 {
		return held
	}
	return most
}
