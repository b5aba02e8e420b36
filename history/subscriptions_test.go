package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
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
	f := must.Get(s.Facts(t.Context(), Question{Rules: budget.Query{Subscription: sub.ID()}}))(t)
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

		pay(t, s, slotOf(sub, 2, 32), Failed)
		require.EqualValues(t, 24, factsOf(t, s, sub).Total())
	})
}

// Whoever holds the key decides by what is sealed of a subscription, whatever the rows say.
func TestASubscriptionsTotalIsSealed(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		sub := testSubscription()
		pay(t, s, slotOf(sub, 0, 8), Settled)
		forge(t, s, `UPDATE payments SET idempotency_key = NULL`)
		p := must.Get(reserve(s, slotOf(sub, 1, 8)))(t)
		k := testKeyholder()
		k.Query = func(p Payment) budget.Query {
			id, _, _ := budget.SubscriptionOf(p.IdempotencyKey)
			return budget.Query{Subscription: id}
		}
		var sealed budget.SubscriptionUse
		k.Permit = func(_ Payment, f budget.Facts, _ Sealed) (*Fact, error) {
			sealed = f.Subscription
			return nil, nil
		}
		require.NoError(t, s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
			UniqueKey: "u"}, k))
		require.EqualValues(t, 8, sealed.Total())
		require.Equal(t, new(money.Dollars(8)), sealed.LastPrice)
	})
}
