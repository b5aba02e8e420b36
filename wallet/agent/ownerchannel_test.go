package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	. "x402-wallet/wallet/agent"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

const channelOwner = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"

// newOwnersWorld has a channel in its ledger that an owner funds, and sealed that they do; change spoils it.
func newOwnersWorld(t *testing.T,
	change func(w *batchWorld, row history.Channel, signed *history.BatchSigned)) *batchWorld {
	t.Helper()
	w := newBatchWorld(t)
	w.config.Payer = channelOwner
	id := must.Get(message.ChannelID(base, w.config))(t)
	w.id = id.Hex()
	row := history.Channel{Service: w.id, Key: w.evm, Server: "api.example", Network: base, Source: w.id,
		ID: w.id}
	signed := history.BatchSigned{Config: w.config}
	signed.Seal = must.Get(w.guard.SealChannel(t.Context(), row))(t)
	if change != nil {
		change(w, row, &signed)
	}
	require.NoError(t, w.store.SaveChannel(t.Context(),
		row.WithSigned(signed).WithBook(history.BatchBook{Funds: money.NewAmount(10_000)})))
	return w
}

// ownersCall reserves a call of 1000 units out of the owner's channel; counts: at its price.
func (w *batchWorld) ownersCall(counts bool) history.Payment {
	p := w.call(0)
	return w.reserve(1000, func(q *history.Payment) {
		q.Scheme, q.Requirement, q.Source = p.Scheme, p.Requirement, w.id
		if !counts {
			q.Price = 0
		}
	})
}

// The agent signs vouchers in a channel that an owner funds: each counts at its price, but one that promises
// no more than was promised before, after a refusal.
func TestTheAgentSignsInAnOwnersChannel(t *testing.T) {
	w := newOwnersWorld(t, nil)
	s := must.Get(w.client.SignChannel(t.Context(), w.message(w.ownersCall(true), 1000, 0)))(t)
	require.Zero(t, s.Deposit)
	must.Get(w.client.SignChannel(t.Context(), w.message(w.ownersCall(true), 2000, 0)))(t)
	again := w.ownersCall(false)
	must.Get(w.client.SignChannel(t.Context(), w.message(again, 2000, 0)))(t)
	row := must.Get(w.store.Channel(t.Context(), w.id, w.evm))(t)
	require.Equal(t, uint64(3), row.Nonce)
	require.Equal(t, "2000", row.Amount.String())
	require.NoError(t, w.ask("expire", again.ID), "it counts nothing, and frees nothing")
	require.NoError(t, verify.Owned(t.Context(), w.guard.Store, w.guard))

	w.allow(func(r *Rules) { r.Budget.Day = 2999 }) // 2000 were counted
	_, err := w.client.SignChannel(t.Context(), w.message(w.ownersCall(true), 3000, 0))
	requireCode(t, err, x402.BudgetExceeded)
}

func TestTheAgentSignsNothingElseInAnOwnersChannel(t *testing.T) {
	for name, c := range map[string]struct {
		why     string
		isFree  bool
		row     func(w *batchWorld, row history.Channel, signed *history.BatchSigned)
		message func(w *batchWorld, m *message.Channel)
	}{
		"that its owner did not seal": {why: "was not said by the owner",
			row: func(_ *batchWorld, _ history.Channel, signed *history.BatchSigned) { signed.Seal = nil }},
		"that was sealed for another host": {why: "was not said by the owner",
			row: func(w *batchWorld, row history.Channel, signed *history.BatchSigned) {
				row.Server = "api.example:8443"
				signed.Seal = must.Get(w.guard.SealChannel(w.t.Context(), row))(w.t)
			}},
		"with a seal of somebody else's": {why: "was not said by the owner",
			row: func(_ *batchWorld, _ history.Channel, signed *history.BatchSigned) { signed.Seal[0]++ }},
		"for more than was promised, and free": {why: "counts nothing", isFree: true},
		"a deposit": {why: "its source is not", message: func(_ *batchWorld, m *message.Channel) {
			m.Deposit = &message.Deposit{Value: money.NewAmount(1000), ValidBefore: m.Config.WithdrawDelay}
		}},
		"with another payer": {why: "no such channel", message: func(_ *batchWorld, m *message.Channel) {
			m.Config.Payer = payee
		}},
		"as its payer": {why: "no such channel", message: func(_ *batchWorld, m *message.Channel) {
			m.Config.PayerAuthorizer = channelOwner
		}},
		"more than the price": {why: "its sum is not", message: func(_ *batchWorld, m *message.Channel) {
			m.Ceiling = money.NewAmount(1001)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newOwnersWorld(t, c.row)
			p := w.ownersCall(!c.isFree)
			m := w.message(p, 1000, 0)
			if c.message != nil {
				c.message(w, &m)
			}
			require.ErrorContains(t, must.Err(w.client.SignChannel(t.Context(), m)), c.why)
			require.Equal(t, history.Reserved, must.Get(w.store.Payment(t.Context(), p.ID))(t).State)
		})
	}
}

// A payment out of a channel of the agent's own is none out of an owner's, and the other way round.
func TestWhoFundsAChannelIsWhoPays(t *testing.T) {
	w := newOwnersWorld(t, nil)
	_, err := w.client.SignChannel(t.Context(), w.message(w.call(0), 1000, 0))
	w.refused(err, "its source is not")
	own := newBatchWorld(t)
	p := own.call(0)
	p = own.reserve(1000, func(q *history.Payment) {
		q.Scheme, q.Requirement, q.Source = p.Scheme, p.Requirement, own.id
	})
	_, err = own.client.SignChannel(t.Context(), own.message(p, 1000, 0))
	own.refused(err, "its source is not")
}

// What was promised out of an owner's channel is never given back: not by the word of who talks to the agent,
// and not by the chain's.
func TestAnOwnersVoucherCountsForGood(t *testing.T) {
	w := newOwnersWorld(t, nil)
	p := w.ownersCall(true)
	must.Get(w.client.SignChannel(t.Context(), w.message(p, 1000, 0)))(t)
	require.Error(t, w.ask("expire", p.ID))
	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	r := &Recorder{Store: w.store, Guard: w.guard, Now: w.now, Tally: &Tally{}}
	require.ErrorContains(t, must.Err(r.Expire(t.Context(), p,
		history.Expiry(p, x402.Status{State: x402.Expired}))), "counts for good")
}
