package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/e2e/asks"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// baseChain is the chain of base.
const baseChain = 84532

const ownersAccount = "0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc"

// pull is a pull that is reserved, and the honest transaction for it.
func (w *world) pull(units uint64) (history.Payment, x402.Pull) {
	p := w.reserve(units, func(p *history.Payment) {
		p.Scheme, p.Method, p.URL, p.Host = x402.Allowance, "transferFrom", "allowance:"+ownersAccount, ""
		p.PayTo, p.Source, p.Price = w.evm, ownersAccount, 0
	})
	return p, x402.Pull{Network: base, Token: usdc.Address, Owner: ownersAccount, Agent: w.evm,
		Amount: p.Amount, ChainID: baseChain, Gas: 60_000, MaxFee: money.NewAmount(1_000_000_000),
		Tip: money.NewAmount(1), Made: time.Now().UTC().Truncate(time.Second)}
}

// asker is a process without the key.
func (w *world) asker() asks.Asks {
	locked := must.Get(wallet.Open(w.home))(w.t)
	return w.signer(locked, &client.Client{Home: w.home, Before: locked.Locked})
}

func (w *world) allowFloats() {
	w.set(func(s *settings) {
		s.allowances = map[string]x402.AllowanceRule{base: {Owner: ownersAccount, Float: 1_000_000,
			MaxGas: money.NewAmount(100_000_000_000_000)}}
	})
}

// The agent signs a float that the ledger has reserved, within the owner's rules, once.
func TestTheAgentSignsAFloat(t *testing.T) {
	w := newWorld(t)
	w.allowFloats()
	p, pull := w.pull(1_000_000)
	signature := must.Get(w.asker().SignPull(t.Context(), p.ID, pull))(t)
	hash := must.Get(message.PullHash(pull, signature))(t)
	signed := must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.Equal(t, history.Submitted, signed.State)
	require.Equal(t, hash, signed.Evidence.Transaction)
	_, err := w.asker().SignPull(t.Context(), p.ID, pull)
	w.refused(err, "the payment is submitted, not reserved")

	again, same := w.pull(1_000_000) // with the same nonce: of two only one can happen
	requireCode(t, must.Err(w.asker().SignPull(t.Context(), again.ID, same)), x402.CheckFailed)
}

func TestTheAgentSignsNoOtherFloat(t *testing.T) {
	for name, c := range map[string]struct {
		units uint64
		row   func(p *history.Payment)
		pull  func(p *x402.Pull)
		rules func(s *settings)
		why   string
	}{
		"another chain":      {pull: func(p *x402.Pull) { p.ChainID = 1 }, why: "its chain"},
		"another network":    {pull: func(p *x402.Pull) { p.Network = "eip155:1" }, why: "its chain"},
		"another token":      {pull: func(p *x402.Pull) { p.Token = payee }, why: "its asset"},
		"another account":    {pull: func(p *x402.Pull) { p.Owner = payee }, why: "its owner"},
		"for somebody else":  {pull: func(p *x402.Pull) { p.Agent = payee }, why: "its agent"},
		"more than reserved": {pull: func(p *x402.Pull) { p.Amount = money.NewAmount(2) }, why: "its amount"},
		"made long ago": {pull: func(p *x402.Pull) { p.Made = p.Made.Add(-time.Hour) },
			why: "its time"},
		"more gas than is allowed": {pull: func(p *x402.Pull) { p.MaxFee = money.NewAmount(10_000_000_000) },
			why: "max_gas"},
		"more than a float": {units: 1_000_001, why: "more than a float"},
		"no account is named": {rules: func(s *settings) { s.allowances = nil },
			why: "no such account"},
		"another account is named": {rules: func(s *settings) {
			rule := s.allowances[base]
			rule.Owner = payee
			s.allowances = map[string]x402.AllowanceRule{base: rule}
		}, why: "no such account"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.allowFloats()
			if c.rules != nil {
				w.set(c.rules)
			}
			p, pull := w.pull(max(c.units, 1_000))
			if c.pull != nil {
				c.pull(&pull)
			}
			_, err := w.asker().SignPull(t.Context(), p.ID, pull)
			w.refused(err, c.why)
			p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
			require.Equal(t, history.Reserved, p.State, "nothing of it is recorded")
		})
	}
}

// What may lie at the agent's account is a float, or the price of a payment that is held where that is more,
// and not more than the owner lets one call cost. What was signed for there may come to it.
func TestSignPull_Bound(t *testing.T) {
	w := newWorld(t)
	w.allowFloats()
	sign := func(nonce, units uint64) error {
		p, pull := w.pull(units)
		pull.Nonce = nonce
		return must.Err(w.asker().SignPull(t.Context(), p.ID, pull))
	}
	allows := func(nonce, units uint64) {
		t.Helper()
		w.refused(sign(nonce, units+1), "more than a float")
		require.NoError(t, sign(nonce, units))
	}
	w.set(func(s *settings) { s.balance = money.NewAmount(400_000) })
	allows(0, 600_000)
	w.refused(sign(1, 1), "with it 1000001 would be at the agent's account") // 600,000 are on their way
	otherCase, pull := w.pull(1)
	pull.Nonce, pull.Agent = 1, strings.ToLower(pull.Agent)
	w.refused(must.Err(w.asker().SignPull(t.Context(), otherCase.ID, pull)), "with it 1000001 would be")
	w.set(func(s *settings) { s.count = 1 }) // they came, and were spent
	allows(1, 600_000)

	w.set(func(s *settings) { s.count, s.balance = 2, money.Amount{} })
	w.reserve(900_000, nil)
	w.reserve(900_000, nil)
	allows(2, 1_000_000) // per_call
	w.set(func(s *settings) { s.count, s.balance = 3, money.NewAmount(1_000_000) })
	must.Get(w.pays(700_000))(t)
	allows(3, 700_000)

	// Rows of earlier floats that somebody changes or takes away free nothing.
	w.sql(`UPDATE payments SET state = 'failed' WHERE scheme = 'allowance'`)
	w.refused(sign(4, 1), "more than a float")
	w.sql(`UPDATE payments SET scheme = 'exact' WHERE scheme = 'allowance'`)
	w.refused(sign(4, 1), "more than a float")
}

// Floats keep to the owner's rate.
func TestSignPull_Rate(t *testing.T) {
	w := newWorld(t)
	w.allowFloats()
	w.allow(func(r *Rules) { r.Budget.Rate = 2 })
	for n := range uint64(3) {
		w.set(func(s *settings) { s.count = n })
		p, pull := w.pull(1_000)
		pull.Nonce = n
		_, err := w.asker().SignPull(t.Context(), p.ID, pull)
		if n < 2 {
			require.NoError(t, err)
		} else {
			requireCode(t, err, x402.RateLimited)
		}
	}
}

// What is reserved as a payment is signed as no float, and what is reserved as a float as no payment.
func TestAFloatIsNoPayment(t *testing.T) {
	w := newWorld(t)
	w.allowFloats()
	p, _ := w.pull(1_000)
	signer := w.signer(w.keys, &client.Client{Home: w.home, Before: func() bool { return true }})
	transfer := w.transfer(p)
	transfer.Authorization.To = payee
	requireCode(t, must.Err(signer.SignTransfer(t.Context(), transfer)), x402.PolicyDenied)

	paid := w.reserve(1_000, nil)
	_, pull := w.pull(1_000)
	_, err := w.asker().SignPull(t.Context(), paid.ID, pull)
	w.refused(err, "cannot be read")
}
