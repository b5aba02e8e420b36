package budget

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

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
		name    string
		known   PayeeHistory
		payee   Rule
		change  Rule
		code    x402.Code
		reasons words
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
