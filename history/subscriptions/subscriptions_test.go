package subscriptions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/historytest"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func testSubscription() budget.Subscription {
	since := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	return budget.Subscription{Name: "news", Since: since, Every: 24 * time.Hour, Until: since.AddDate(1, 0,
		0),
		Max: 10, Total: 100}
}

// slotOf is a hold for a slot of a subscription.
func slotOf(s budget.Subscription, slot int, price uint64) history.Hold {
	h := historytest.Hold(price)
	h.Payment.IdempotencyKey = s.Key(s.Since.Add(time.Duration(slot) * s.Every))
	return h
}

// What a subscription took is what was paid and is held under its keys, and nothing else.
func TestWhatASubscriptionSpent(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		sub := testSubscription()
		other := sub
		other.Name = "news-2"
		again := sub
		again.Since = sub.Since.Add(time.Second)
		historytest.Pay(t, s, historytest.Hold(1), history.Settled)
		historytest.Pay(t, s, slotOf(other, 0, 2), history.Settled)
		historytest.Pay(t, s, slotOf(again, 0, 4), history.Settled)
		historytest.Pay(t, s, slotOf(sub, 0, 8), history.Settled)
		historytest.Pay(t, s, slotOf(sub, 1, 16), history.Reserved)
		historytest.Pay(t, s, slotOf(sub, 2, 32), history.Failed)
		require.Equal(t, budget.Use{Spent: 8, Held: 16}, must.Get(Spent(t.Context(), s, sub.ID()))(t))
		list := must.Get(Payments(t.Context(), s, sub.ID(), 9))(t)
		require.Len(t, list, 2)
		require.EqualValues(t, 16, list[0].Price, "newest first")
	})
}

// Where a run stands goes on, and never back: of several processes the late one changes nothing.
func TestNoteRun(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		sub := testSubscription()
		slot := sub.Since
		for _, step := range []struct {
			note Run
			want State
			slot time.Time
		}{
			{Run{Slot: slot, State: Running}, Running, slot},
			{Run{Slot: slot, State: Waiting}, Waiting, slot},
			{Run{Slot: slot, State: Done}, Done, slot},
			{Run{Slot: slot, State: Failed}, Done, slot},
			{Run{Slot: slot.Add(sub.Every), State: Running}, Running, slot.Add(sub.Every)},
			{Run{Slot: slot, State: Done}, Running, slot.Add(sub.Every)},
		} {
			alert := &Alert{Window: "one", Why: "why"}
			require.NoError(t, NoteRun(t.Context(), s, alerts.Writer{}, sub, step.note, alert))
			runs := must.Get(Runs(t.Context(), s))(t)
			require.Equal(t, step.want, runs[sub.ID()].State)
			require.True(t, step.slot.Equal(runs[sub.ID()].Slot))
		}
		require.Len(t, must.Get(alerts.List(t.Context(), s, 9))(t), 1, "once for each window")
		_, err := verify.Ledger(t.Context(), s, history.Head{})
		require.NoError(t, err, "hints are nothing to the chain")
	})
}

// No agent keeps another one from proposing, nor fills the ledger; what nobody wanted is forgotten.
func TestProposalsAreBounded(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		propose := func(agent, url string) (Proposal, error) {
			return Propose(t.Context(), s, alerts.Writer{},
				Proposal{Agent: agent, URL: url, Every: "1d", Max: 10})
		}
		require.Equal(t, must.Get(propose("a", "0"))(t).ID, must.Get(propose("a", "0"))(t).ID)
		for _, url := range []string{"1", "2", "3", "4"} {
			must.Get(propose("a", url))(t)
		}
		require.ErrorIs(t, must.Err(propose("a", "5")), ErrManyProposals)
		for _, agent := range []string{"b", "c", "d", "e"} {
			for _, url := range []string{"0", "1", "2", "3", "4"} {
				must.Get(propose(agent, url))(t)
			}
		}
		require.ErrorIs(t, must.Err(propose("f", "0")), ErrManyProposals)
		c.Set(c.Now().Add(proposalTime))
		must.Get(propose("a", "5"))(t)
		require.Len(t, must.Get(Proposals(t.Context(), s))(t), 1)
	})
}
