package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// remembering is a ledger that knows a last price.
type remembering struct {
	fake
	last money.Dollars
}

func (r remembering) PayeeHistory(string, Payee) (Memory, error) {
	return Memory{Paid: true, PaidHere: true, LastPrice: &r.last}, nil
}

// Room is exactly the highest price that Check lets pass: one more is refused.
func TestRoom(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	session := money.Dollars(5_000_000)
	rules := Rules{PerCall: 1_000_000, Session: &session, Day: 10_000_000, Month: 100_000_000,
		ApproveAbove: 100_000, Rate: 60, PriceJump: 3}
	spent := func(price money.Dollars) fake {
		return fake{{at: now.Add(-time.Hour), session: "s", price: price}}
	}
	for _, c := range []struct {
		name   string
		change func(*Rules)
		ledger Ledger
		yes    money.Dollars
		room   money.Dollars
	}{
		{"approve_above", nil, fake{}, 0, 100_000},
		{"per_call", func(r *Rules) { r.PerCall = 50_000 }, fake{}, 0, 50_000},
		{"session", nil, spent(4_990_000), 0, 10_000},
		{"day", func(r *Rules) { r.Day = 70_000 }, spent(1), 0, 69_999},
		{"nothing left", nil, spent(5_000_000), 0, 0},
		{"below a jump", nil, remembering{last: 1000}, 0, 2999},
		{"a jump in fractions", func(r *Rules) { r.PriceJump = 1.1 }, remembering{last: 15}, 0, 16},
		{"no jump rule", func(r *Rules) { r.PriceJump = 0 }, remembering{last: 1000}, 0, 100_000},
		{"a person said yes", nil, remembering{last: 1000}, 700_000, 700_000},
		{"a yes above per_call", nil, fake{}, 7_000_000, 1_000_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules
			if c.change != nil {
				c.change(&r)
			}
			a := Ask{Host: "h", Now: now, Session: Session{ID: "s", Started: now, Last: now}}
			room, err := r.MaxPrice(a, c.yes, c.ledger)
			require.NoError(t, err)
			require.Equal(t, c.room, room)
			a.Price, a.Approved = room, func() (bool, error) { return c.yes > 0, nil }
			require.NoError(t, r.Check(a, c.ledger))
			a.Price++
			require.True(t, c.yes > 0 && a.Price <= r.PerCall || r.Check(a, c.ledger) != nil,
				"one more is refused")
		})
	}
	_, err := rules.MaxPrice(Ask{Host: "h", Now: now, Always: "it is a channel's opening"}, 0, fake{})
	require.True(t, x402.HasCode(err, x402.ApprovalRequired), "%v", err)
	rules.DenyHosts = []string{"h"}
	_, err = rules.MaxPrice(Ask{Host: "h", Now: now}, 0, fake{})
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
}
