package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func daily() Subscription {
	return Subscription{Name: "news", Agent: "research", Since: at("2027-03-27T02:30:00Z"),
		Every: 24 * time.Hour, Until: at("2027-04-01T00:00:00Z"), Max: 50_000, Total: 200_000,
		Request: [32]byte{1}, Host: "api.example", Resource: "GET api.example/news", PayTo: []string{"0xAa"}}
}

func TestSubscriptionKeys(t *testing.T) {
	s := daily()
	key := s.Key(s.Since)
	require.Equal(t, "x402-subscription:news:20270327T023000Z:20270327T023000Z", key)
	from, to := SubscriptionKeys(s.ID())
	require.True(t, from < key && key < to)
	longer := s
	longer.Name = "news-2"
	require.False(t, from < longer.Key(s.Since) && longer.Key(s.Since) < to)
	for _, bad := range []string{"", "news", "x402-subscription:", "x402-subscription:news",
		"x402-subscription:news:20270327T023000Z", "x402-subscription::20270327T023000Z:20270327T023000Z",
		"x402-subscription:news:20270327T023000Z:20270327T023000Z:x",
		"x402-subscription:news:20270327T023000.5Z:20270327T023000Z"} {
		_, _, ok := SubscriptionOf(bad)
		require.False(t, ok, bad)
	}
}

// What a subscription's payment may be: each row changes one thing of a payment that passes.
func TestSubscriptionRules(t *testing.T) {
	s := daily()
	unpinned := s
	unpinned.PayTo = nil
	rules := Rules{PerCall: 1_000_000, Day: 10_000_000, Month: 10_000_000, ApproveAbove: 1, Rate: 9,
		Agents:        map[string]Agent{"research": {}, "other": {}},
		Subscriptions: map[string]Subscription{"news": s}}
	now := at("2027-03-28T12:00:00Z")
	slot := at("2027-03-28T02:30:00Z")
	last := money.Dollars(50_000)
	for _, c := range []struct {
		name   string
		change func(*Rules, *Ask, *Facts)
		code   x402.Code
		asks   string // the reason, where a person is asked
	}{
		{"as ordered, above approve_above", func(*Rules, *Ask, *Facts) {}, "", ""},
		{"one unit above the last price", func(_ *Rules, a *Ask, f *Facts) {
			f.Subscription.LastPrice = new(last - 1)
		}, x402.ApprovalRequired, "above the last one"},
		{"one unit above max", func(_ *Rules, a *Ask, f *Facts) {
			a.Price++
			f.Subscription.LastPrice = nil
		}, x402.ApprovalRequired, "above the $0.05"},
		{"approved above max", func(_ *Rules, a *Ask, f *Facts) {
			a.Price++
			a.Approved = true
		}, "", ""},
		{"another payee", func(_ *Rules, a *Ask, f *Facts) { a.Payee.PayTo = "0xBB" }, x402.ApprovalRequired,
			"paid 0xaa last time"},
		{"the last unit of the total", func(_ *Rules, _ *Ask, f *Facts) { f.Subscription.Spent = 150_000 },
			"", ""},
		{"one unit above the total", func(_ *Rules, a *Ask, f *Facts) {
			f.Subscription.Spent, f.Subscription.Held = 150_000, 1
			a.Approved = true
		}, x402.BudgetExceeded, ""},
		{"out of a deposit, which the total has", func(_ *Rules, a *Ask, f *Facts) {
			f.Subscription.Spent = 200_000
			a.Prepaid = true
		}, "", ""},
		{"the slot before", func(_ *Rules, a *Ask, _ *Facts) {
			a.Key = s.Key(slot.Add(-s.Every))
		}, x402.PolicyDenied, ""},
		{"the slot after", func(_ *Rules, a *Ask, _ *Facts) {
			a.Key = s.Key(slot.Add(s.Every))
		}, x402.PolicyDenied, ""},
		{"no slot of its", func(_ *Rules, a *Ask, _ *Facts) {
			a.Key = s.Key(slot.Add(time.Second))
		}, x402.PolicyDenied, ""},
		{"until has passed", func(_ *Rules, a *Ask, f *Facts) {
			f.Now = at("2027-04-01T00:00:00Z")
			a.Key = s.Key(at("2027-03-31T02:30:00Z"))
		}, x402.PolicyDenied, ""},
		{"cancelled", func(r *Rules, _ *Ask, _ *Facts) { r.Subscriptions = nil }, x402.PolicyDenied, ""},
		{"made anew under its name", func(r *Rules, _ *Ask, _ *Facts) {
			other := s
			other.Since = s.Since.Add(-s.Every)
			r.Subscriptions = map[string]Subscription{"news": other}
		}, x402.PolicyDenied, ""},
		{"paused", func(r *Rules, _ *Ask, _ *Facts) {
			other := s
			other.Paused = true
			r.Subscriptions = map[string]Subscription{"news": other}
		}, x402.PolicyDenied, ""},
		{"another agent's", func(_ *Rules, a *Ask, _ *Facts) { a.Agent = "other" }, x402.PolicyDenied, ""},
		{"for the first time, to nobody of pay_to", func(r *Rules, _ *Ask, f *Facts) {
			r.Subscriptions = map[string]Subscription{"news": unpinned}
			f.Subscription = SubscriptionUse{}
		}, x402.ApprovalRequired, "the subscription news pays 0xAA for the first time"},
		{"for the first time, to nobody of pay_to, approved", func(r *Rules, a *Ask, f *Facts) {
			r.Subscriptions = map[string]Subscription{"news": unpinned}
			f.Subscription, a.Approved = SubscriptionUse{}, true
		}, "", ""},
		{"for the first time, to one of pay_to", func(_ *Rules, _ *Ask, f *Facts) {
			f.Subscription = SubscriptionUse{}
		}, "", ""},
		{"to the payee of last time, without pay_to", func(r *Rules, _ *Ask, _ *Facts) {
			r.Subscriptions = map[string]Subscription{"news": unpinned}
		}, "", ""},
		{"to one of pay_to, and not as last time", func(_ *Rules, _ *Ask, f *Facts) {
			f.Subscription.LastPayTo = "0xbb"
		}, "", ""},
		{"to one of pay_to in other letters, where letters count", func(r *Rules, a *Ask, f *Facts) {
			other := s
			other.PayTo, a.Payee.PayTo, f.Subscription = []string{"So1"}, "so1", SubscriptionUse{}
			r.Subscriptions = map[string]Subscription{"news": other}
		}, x402.ApprovalRequired, "pays so1 for the first time"},
		{"another host", func(_ *Rules, a *Ask, _ *Facts) { a.Host = "other.example" }, x402.PolicyDenied,
			"it is for another host"},
		{"another resource", func(_ *Rules, a *Ask, _ *Facts) {
			a.Payee.Resource = "POST api.example/news"
		}, x402.PolicyDenied, "it is for another resource"},
		{"another request", func(_ *Rules, a *Ask, _ *Facts) { a.Request[0]++ }, x402.PolicyDenied, ""},
		{"a key that is none", func(_ *Rules, a *Ask, _ *Facts) {
			a.Key = "x402-subscription:news"
		}, x402.PolicyDenied, ""},
		{"the owner's day", func(r *Rules, _ *Ask, f *Facts) { r.Day = 49_999 }, x402.BudgetExceeded, ""},
		{"a call by itself asks above approve_above", func(_ *Rules, a *Ask, _ *Facts) {
			a.Key = "mine"
		}, x402.ApprovalRequired, "above what is paid without asking"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules
			a := Ask{Agent: "research", Price: 50_000, Host: "api.example", Key: s.Key(slot),
				Request: s.Request, Payee: Payee{Network: "eip155:8453", PayTo: "0xAA", Resource: s.Resource}}
			f := Facts{Now: now, Subscription: SubscriptionUse{LastPrice: &last, LastPayTo: "0xaa"}}
			c.change(&r, &a, &f)
			_, err := r.Decide(a, f)
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, x402.HasCode(err, c.code), "%v", err)
			require.Contains(t, x402.AsError(err).Message, c.asks)
		})
	}
}
