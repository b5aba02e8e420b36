package pay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// No caller takes the key of a subscription's slot: whoever could would have a slot's purchase, or be one.
func TestSubscriptionKeysAreTheWallets(t *testing.T) {
	const key = "x402-subscription:news:20270327T023000Z:20270327T023000Z"
	q := Request{Request: seller.Request{URL: "https://api.example/"}, IdempotencyKey: key}
	_, err := q.parse("")
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "%v", err)
	q.OfSubscription = true
	in := must.Get(q.parse(""))(t)
	require.Equal(t, q.Fingerprint(""), in.fingerprint, "the rules know the request by the same")
	require.NotEqual(t, q.Fingerprint("a"), in.fingerprint)
	q.IdempotencyKey = "mine"
	_, err = q.parse("")
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "%v", err)
}

func subscribed(t *testing.T, b *bench, every time.Duration) (s budget.Subscription, q Request) {
	q = get(testURL)
	facts := must.Get(b.Store.Facts(t.Context(), history.Question{}))(t)
	s = budget.Subscription{Name: "news", Since: facts.Now.Add(-10 * every).Truncate(time.Second),
		Every: every, Until: facts.Now.Add(1000 * every), Max: 10_000, Total: 25_000,
		Request: q.Fingerprint("")}
	b.Rules.Subscriptions = map[string]budget.Subscription{s.Name: s}
	slot, in := s.Slot(facts.Now)
	require.True(t, in)
	q.IdempotencyKey, q.OfSubscription = s.Key(slot), true
	return s, q
}

// A slot is one purchase, above approve_above without asking, and none that the agent made by itself; its
// owner is told when the next one could not be paid.
func TestASlotIsOnePurchase(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Rules.ApproveAbove = 1
	left := money.NewAmount(19_999)
	b.Schemes[exactEVM] = limited{chain: b.chain, delegated: &left}
	s, q := subscribed(t, b, 24*time.Hour)
	_, err := b.Pay(t.Context(), get(testURL))
	require.True(t, x402.HasCode(err, x402.ApprovalRequired), "the agent's own call: %v", err)
	first := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, StatusPaid, first.Status)
	again := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, []string{StatusReplayed, first.PaymentID}, []string{again.Status, again.PaymentID})
	funds := b.alerts(t, alerts.Funds)
	require.Len(t, funds, 1, "although low_funds is not set")
	require.Equal(t, b.Rules.Month, funds[0].Detail.Renew)

	other := q
	other.URL += "?other"
	_, err = b.Pay(t.Context(), other)
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "the key is another request's: %v", err)
	delete(b.Rules.Subscriptions, "news")
	q.IdempotencyKey = s.Key(s.Since) // of another slot
	_, err = b.Pay(t.Context(), q)
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
}
