package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// MaxPrice is exactly the highest price that Decide lets pass: one more is refused.
func TestMaxPrice(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	session := money.Dollars(5_000_000)
	rules := Rules{PerCall: 1_000_000, Session: &session, Day: 10_000_000, Month: 100_000_000,
		ApproveAbove: 100_000, Rate: 60, PriceJump: 3}
	spent := func(price money.Dollars) fake {
		return fake{{at: now.Add(-time.Hour), session: "s", price: price}}
	}
	for _, c := range []struct {
		name     string
		change   func(*Rules)
		ledger   fake
		last     money.Dollars // 0: never bought
		approved money.Dollars
		most     money.Dollars
	}{
		{"approve_above", nil, fake{}, 0, 0, 100_000},
		{"per_call", func(r *Rules) { r.PerCall = 50_000 }, fake{}, 0, 0, 50_000},
		{"session", nil, spent(4_990_000), 0, 0, 10_000},
		{"day", func(r *Rules) { r.Day = 70_000 }, spent(1), 0, 0, 69_999},
		{"nothing left", nil, spent(5_000_000), 0, 0, 0},
		{"below a jump", nil, fake{}, 1000, 0, 2999},
		{"a jump in fractions", func(r *Rules) { r.PriceJump = 1.1 }, fake{}, 15, 0, 16},
		{"no jump rule", func(r *Rules) { r.PriceJump = 0 }, fake{}, 1000, 0, 100_000},
		{"a person approved", nil, fake{}, 1000, 700_000, 700_000},
		{"an approval above per_call", nil, fake{}, 0, 7_000_000, 1_000_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules
			if c.change != nil {
				c.change(&r)
			}
			a := Ask{Host: "h"}
			facts := c.ledger.facts(r.Query(a), now, Session{ID: "s", Started: now, Last: now})
			if c.last > 0 {
				facts.Payee.LastPrice = &c.last
			}
			most := must.Get(r.MaxPrice(a, c.approved, facts))(t)
			require.Equal(t, c.most, most)
			a.Price, a.Approved = most, c.approved > 0
			must.Get(r.Decide(a, facts))(t)
			a.Price++
			_, err := r.Decide(a, facts)
			require.True(t, (c.approved > 0 && a.Price <= r.PerCall) || err != nil, "one more is refused")
		})
	}
	_, err := rules.MaxPrice(Ask{Host: "h", Always: "it is a channel's opening"}, 0,
		fake{}.facts(Query{}, now, Session{}))
	require.True(t, x402.HasCode(err, x402.ApprovalRequired), "%v", err)
	rules.DenyHosts = []string{"h"}
	_, err = rules.MaxPrice(Ask{Host: "h"}, 0, fake{}.facts(Query{}, now, Session{}))
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
}
