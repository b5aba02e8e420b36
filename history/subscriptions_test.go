package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

func testSubscription() budget.Subscription {
	since := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	return budget.Subscription{Name: "news", Since: since, Every: 24 * time.Hour, Until: since.AddDate(1, 0,
		0),
		Max: 10, Total: 100}
}

// slotOf is a hold for a slot of a subscription.
func slotOf(s budget.Subscription, slot int, price uint64) Hold {
	h := testHold(price)
	h.Payment.IdempotencyKey = s.Key(s.Since.Add(time.Duration(slot) * s.Every))
	return h
}

func factsOf(t *testing.T, s *Store, sub budget.Subscription) budget.SubscriptionUse {
	t.Helper()
	f, err := s.Facts(t.Context(), Question{Rules: budget.Query{Subscription: sub.ID()}})
	require.NoError(t, err)
	return f.Subscription
}

// What a subscription took is what was signed and is held under its keys, and nothing else; what expired is
// given back.
func TestSubscriptionUse(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		sub := testSubscription()
		other := sub
		other.Name = "news-2"
		again := sub
		again.Since = sub.Since.Add(time.Second)
		require.Equal(t, budget.SubscriptionUse{}, factsOf(t, s, sub))
		pay(t, s, testHold(1), Settled)
		pay(t, s, slotOf(other, 0, 2), Settled)
		pay(t, s, slotOf(again, 0, 4), Settled)
		pay(t, s, slotOf(sub, 0, 8), Settled)
		pay(t, s, slotOf(sub, 1, 16), Reserved)
		use := factsOf(t, s, sub)
		require.EqualValues(t, 24, use.Total())
		require.NotNil(t, use.LastPrice)
		require.Equal(t, "0xpayee", use.LastPayTo)
		spent, err := s.SubscriptionSpent(t.Context(), sub.ID())
		require.NoError(t, err)
		require.Equal(t, budget.Use{Spent: 8, Held: 16}, spent)

		pay(t, s, slotOf(sub, 2, 32), Failed)
		require.EqualValues(t, 24, factsOf(t, s, sub).Total())
		list, err := s.SubscriptionPayments(t.Context(), sub.ID(), 9)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.EqualValues(t, 16, list[0].Price, "newest first")
	})
}

// Whoever holds the key decides by what is sealed of a subscription, whatever the rows say.
func TestASubscriptionsTotalIsSealed(t *testing.T) {
	s, _, _ := emptyStore(t)
	sub := testSubscription()
	pay(t, s, slotOf(sub, 0, 8), Settled)
	forge(t, s, `UPDATE payments SET idempotency_key = NULL`)
	p, err := reserve(s, slotOf(sub, 1, 8))
	require.NoError(t, err)
	k := testKeyholder()
	k.Query = func(p Payment) budget.Query {
		id, _, _ := budget.SubscriptionOf(p.IdempotencyKey)
		return budget.Query{Subscription: id}
	}
	var sealed budget.SubscriptionUse
	k.Permit = func(_ Payment, f budget.Facts) error {
		sealed = f.Subscription
		return nil
	}
	require.NoError(t, s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
		UniqueKey: "u"}, k))
	require.EqualValues(t, 8, sealed.Total())
	require.Equal(t, new(money.Dollars(8)), sealed.LastPrice)
}

// Where a run stands goes on, and never back: of several processes the late one changes nothing.
func TestNoteRun(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		sub := testSubscription()
		slot := sub.Since
		for _, step := range []struct {
			note SubscriptionRun
			want RunState
			slot time.Time
		}{
			{SubscriptionRun{Slot: slot, State: RunRunning}, RunRunning, slot},
			{SubscriptionRun{Slot: slot, State: RunWaiting}, RunWaiting, slot},
			{SubscriptionRun{Slot: slot, State: RunDone}, RunDone, slot},
			{SubscriptionRun{Slot: slot, State: RunFailed}, RunDone, slot},
			{SubscriptionRun{Slot: slot.Add(sub.Every), State: RunRunning}, RunRunning, slot.Add(sub.Every)},
			{SubscriptionRun{Slot: slot, State: RunDone}, RunRunning, slot.Add(sub.Every)},
		} {
			alert := &SubscriptionAlert{Window: "one", Why: "why"}
			require.NoError(t, s.NoteRun(t.Context(), sub, step.note, alert))
			runs, err := s.SubscriptionRuns(t.Context())
			require.NoError(t, err)
			require.Equal(t, step.want, runs[sub.ID()].State)
			require.True(t, step.slot.Equal(runs[sub.ID()].Slot))
		}
		alerts, err := s.Alerts(t.Context(), 9)
		require.NoError(t, err)
		require.Len(t, alerts, 1, "once for each window")
		_, err = s.Verify(t.Context(), Head{})
		require.NoError(t, err, "hints are nothing to the chain")
	})
}

// No agent keeps another one from proposing, nor fills the ledger; what nobody wanted is forgotten.
func TestProposalsAreBounded(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		propose := func(agent, url string) (Proposal, error) {
			return s.Propose(t.Context(), Proposal{Agent: agent, URL: url, Every: "1d", Max: 10})
		}
		first, err := propose("a", "0")
		require.NoError(t, err)
		same, err := propose("a", "0")
		require.NoError(t, err)
		require.Equal(t, first.ID, same.ID)
		for _, url := range []string{"1", "2", "3", "4"} {
			_, err = propose("a", url)
			require.NoError(t, err)
		}
		_, err = propose("a", "5")
		require.ErrorIs(t, err, ErrManyProposals)
		for _, agent := range []string{"b", "c", "d", "e"} {
			for _, url := range []string{"0", "1", "2", "3", "4"} {
				_, err = propose(agent, url)
				require.NoError(t, err)
			}
		}
		_, err = propose("f", "0")
		require.ErrorIs(t, err, ErrManyProposals)
		c.at = c.at.Add(proposalTime)
		_, err = propose("a", "5")
		require.NoError(t, err)
		list, err := s.Proposals(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
	})
}
