package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func refused(t *testing.T, r Rules, a Ask, ledger fake) *x402.Error {
	t.Helper()
	err := check(r, a, ledger)
	require.Error(t, err)
	return x402.AsError(err)
}

// What would pass is said after all rules were looked at: an approval that would still be needed, the rate,
// the other windows.
func TestAHintLooksAtEveryRule(t *testing.T) {
	hour := func(price string) fake {
		return fake{{noon.Add(-time.Hour), current.ID, "api.example", dollars(t, price), false, ""}}
	}
	r := rules(t)
	require.Equal(t, "the owner's rules let up to $0.30 pass now",
		refused(t, r, ask(t, "0.5"), hour("4.7")).Hint)
	r.ApproveAbove = dollars(t, "0.1")
	require.Equal(t, "the owner's rules let up to $0.10 pass now",
		refused(t, r, ask(t, "0.5"), hour("4.7")).Hint, "above that a person would be asked")
	require.Equal(t, "the owner's rules let up to $0.10 pass now", refused(t, r, ask(t, "2"), nil).Hint)
	a := ask(t, "0.5")
	a.Always = "it is a channel's opening"
	e := refused(t, r, a, hour("4.7"))
	require.Contains(t, e.Hint, "nothing passes now without a person's approval")
	require.Contains(t, e.Next.Why, "a person has to approve it then, too: it is a channel's opening")
	minute := fake{{at: noon.Add(-50 * time.Second)}, {at: noon.Add(-20 * time.Second)}, {at: noon}}
	e = refused(t, r, ask(t, "2"), minute)
	require.Equal(t, "nothing passes now: 3 payments in the last minute; the owner allows 3", e.Hint)
	require.Contains(t, refused(t, rules(t), ask(t, "0.5"), hour("5")).Hint, "nothing that costs money "+
		"passes now")
	require.Equal(t, "nothing passes now: the owner's session budget of $5.00 is used up",
		refused(t, rules(t), ask(t, "0.5"), hour("5.1")).Hint, "the owner lowered it")
}

// A wait is until the last of the limits in the way has moved, and says what that counts from.
func TestWhenTheSameCallPasses(t *testing.T) {
	r := rules(t)
	session := fake{{noon.Add(-time.Hour), current.ID, "h", dollars(t, "4.7"), false, ""}}
	e := refused(t, r, ask(t, "0.5"), session)
	require.Equal(t, x402.Next{Do: x402.Wait, At: "2026-11-21T20:00:00Z",
		Why: "the session ends at 2026-11-21T20:00:00Z, 8 hours after its last payment; each payment moves " +
			"that",
		Command: "x402-wallet budget set session 5.20",
		Say: "It costs $0.50, and your session budget of $5.00 has $0.30 left: please raise it, or it " +
			"resets at 2026-11-21T20:00:00Z."}, e.NextStep())
	both := append(session, row{noon.Add(-10 * time.Hour), "old", "h", dollars(t, "5"), false, ""})
	require.Equal(t, "2026-11-22T00:00:00Z", refused(t, r, ask(t, "0.5"), both).NextStep().At, "the day, too")

	e = refused(t, r, ask(t, "0.5"), fake{{at: noon.Add(-50 * time.Second)},
		{at: noon.Add(-20 * time.Second)},
		{at: noon}})
	require.Equal(t, x402.RateLimited, e.Code)
	require.Equal(t, "the rate allows the next payment at 2026-11-21T12:00:10Z, a minute after the oldest "+
		"of the last 3; each payment moves that", e.NextStep().Why)
	require.Equal(t, "2026-11-21T12:00:10Z", e.NextStep().At)
}

// What only the owner can lift has the line that lifts it.
func TestWhatTheOwnerTypes(t *testing.T) {
	r := rules(t)
	r.HostDay = map[string]money.Dollars{"*.example": dollars(t, "0.2")}
	r.DenyHosts = []string{"bad.example"}
	for command, a := range map[string]Ask{
		"x402-wallet budget set per_call 2.01":               {Host: "h", Price: dollars(t, "2.001")},
		"x402-wallet budget set day 0.50 --host '*.example'": {Host: "api.example", Price: dollars(t, "0.5")},
		"x402-wallet policy allow bad.example":               {Host: "bad.example"},
	} {
		next := refused(t, r, a, nil).NextStep()
		require.Equal(t, []any{x402.AskPerson, command}, []any{next.Do, next.Command})
		require.NotEmpty(t, next.Say)
	}
	e := refused(t, r, Ask{Host: "h", Price: dollars(t, "2")}, nil)
	require.Equal(t, x402.ByPerson, e.FixableBy())
}

// A price that is not known yet is refused with the same advice.
func TestAnUnknownPriceIsRefusedWithAdvice(t *testing.T) {
	minute := fake{{at: noon.Add(-50 * time.Second)}, {at: noon.Add(-20 * time.Second)}, {at: noon}}
	r := rules(t)
	_, err := r.MaxPrice(Ask{Host: "h"}, 0, minute.facts(r.Query(Ask{Host: "h"}), noon, current))
	require.Equal(t, "2026-11-21T12:00:10Z", x402.AsError(err).NextStep().At)
	require.Contains(t, x402.AsError(err).NextStep().Why, "a minute after the oldest of the last 3")
}

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
		name           string
		change         func(*Rules)
		ledger         fake
		last           money.Dollars // 0: never bought
		approved, most money.Dollars
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

// remembering is an empty ledger that knows a payee or a price.
func remembering(q Query, known PayeeHistory) Facts {
	f := fake{}.facts(q, noon, current)
	f.Payee = known
	return f
}

// One row for each thing that may be remembered, under each rule about it.
func TestWhatIsUnusual(t *testing.T) {
	here, elsewhere := PayeeHistory{Paid: true, PaidHere: true}, PayeeHistory{Paid: true}
	never, changed, moved := PayeeHistory{}, PayeeHistory{Other: "0xold"},
		PayeeHistory{Paid: true, Other: "0xold"}
	several := PayeeHistory{Paid: true, PaidHere: true, Other: "0xold"}
	type words = []string
	for _, c := range []struct {
		name          string
		known         PayeeHistory
		payee, change Rule
		code          x402.Code
		reasons       words
	}{
		{"paid here", here, RuleRefuse, RuleRefuse, "", nil},
		{"paid elsewhere, first time here", elsewhere, RuleRefuse, RuleRefuse, "", nil},
		{"one of several paid here", several, RuleRefuse, RuleRefuse, "", nil},
		{"never paid, allowed", never, RuleAllow, RuleRefuse, "", nil},
		{"never paid, no rule", never, "", "", "", nil},
		{"never paid, ask", never, RuleAsk, RuleRefuse, x402.ApprovalRequired, words{"new_payee"}},
		{"never paid, refuse", never, RuleRefuse, RuleAllow, x402.PolicyDenied, nil},
		{"changed, allowed", changed, RuleAllow, RuleAllow, "", nil},
		{"changed, ask", changed, RuleAllow, RuleAsk, x402.ApprovalRequired, words{"payee_change"}},
		{"changed, both ask", changed, RuleAsk, RuleAsk, x402.ApprovalRequired,
			words{"payee_change", "new_payee"}},
		{"changed, refuse", changed, RuleAllow, RuleRefuse, x402.PayeeChanged, nil},
		{"changed and new, both refuse", changed, RuleRefuse, RuleRefuse, x402.PayeeChanged, nil},
		{"changed, new refuse", changed, RuleRefuse, RuleAsk, x402.PolicyDenied, nil},
		{"changed to one known elsewhere", moved, RuleRefuse, RuleAsk, x402.ApprovalRequired,
			words{"payee_change"}},
		{"changed to one known elsewhere, refuse", moved, RuleAllow, RuleRefuse, x402.PayeeChanged, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, a := rules(t), ask(t, "1")
			r.NewPayee, r.PayeeChange = c.payee, c.change
			a.Payee.PayTo = "0xnew"
			_, err := r.Decide(a, remembering(r.Query(a), c.known))
			a.Approved = true
			decision, approved := r.Decide(a, remembering(r.Query(a), c.known))
			require.Equal(t, c.reasons != nil, decision.NeedsApproval,
				"an approval is used up only where it is needed")
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, x402.HasCode(err, c.code), "%v", err)
			require.Equal(t, "0xnew", x402.AsError(err).Details["payTo"])
			var reasons words
			list, _ := x402.AsError(err).Details["reasons"].([]reason)
			for _, q := range list {
				reasons = append(reasons, q.Rule)
			}
			require.Equal(t, c.reasons, reasons)
			require.Equal(t, c.code == x402.ApprovalRequired, approved == nil,
				"an approval lifts a question and never a refusal")
		})
	}
}

func TestPriceJump(t *testing.T) {
	for i, c := range []struct {
		factor      float64
		last, price money.Dollars
		asks        bool
	}{
		{3, 1000, 2999, false},
		{3, 1000, 3000, true},
		{3, 1000, 3001, true},
		{1.1, 100_000, 109_999, false}, // 1.1 is more than 1.1 in binary
		{1.1, 100_000, 110_000, true},
		{2.5, 1, 2, false},
		{2.5, 1, 3, true},
		{1, 1000, 1000, false}, // the same price is no jump
		{1, 1000, 1001, true},
		{3, 1000, 10, false},
		{0, 1000, 900_000, false}, // no rule
		{3, 0, 1, true},
		{1e6, 1, 999_999, false},
		{1e6, 1, 1_000_000, true},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r, a := rules(t), ask(t, c.price.String())
			r.PriceJump = c.factor
			known := PayeeHistory{Paid: true, PaidHere: true, LastPrice: &c.last}
			_, err := r.Decide(a, remembering(r.Query(a), known))
			require.Equal(t, c.asks, x402.HasCode(err, x402.ApprovalRequired), "%v: %v", c, err)
			known.LastPrice = nil
			decision, err := r.Decide(a, remembering(r.Query(a), known))
			require.NoError(t, err, "never bought")
			if c.factor != 0 {
				require.Equal(t, c.asks, c.last < *decision.MinLastPrice, "%v: %v", c, *decision.MinLastPrice)
			}
		})
	}
}
