//go:build linux || darwin || windows

package agent_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	. "x402-wallet/wallet/agent"
	"x402-wallet/x402"
)

// A row under a subscription's key, with its fingerprint, is signed without a person only where it pays the
// ordered host and resource, and a payee that the owner sealed.
func TestWhoSigns_ComparesARowWithTheSubscription(t *testing.T) {
	const other = "0x000000000000000000000000000000000000dEaD"
	begin := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	ordered := budget.Subscription{Name: "news", Since: begin, Every: 24 * time.Hour,
		Until: begin.AddDate(1, 0, 0), Max: 900_000, Total: 2_000_000,
		Request: sha256.Sum256([]byte("news")), Host: "api.example", Resource: "GET api.example/x",
		PayTo: []string{payee}}
	for _, c := range []struct {
		name   string
		row    func(*history.Payment)
		change func(*budget.Subscription)
		code   x402.Code // "": it is signed
		why    string
	}{
		{name: "as ordered", row: func(*history.Payment) {}},
		{name: "another query", row: func(p *history.Payment) { p.URL += "?key=***" }},
		{name: "another host", row: func(p *history.Payment) {
			p.Host, p.URL = "other.example", "https://other.example/x"
		}, code: x402.PolicyDenied, why: "it is for another host"},
		{name: "another path", row: func(p *history.Payment) { p.URL = "https://api.example/y" },
			code: x402.PolicyDenied, why: "it is for another resource"},
		{name: "another method", row: func(p *history.Payment) { p.Method = "POST" },
			code: x402.PolicyDenied, why: "it is for another resource"},
		{name: "another payee", row: func(p *history.Payment) { p.PayTo = other },
			code: x402.ApprovalRequired, why: "pays " + other + " for the first time"},
		{name: "no payee pinned", row: func(*history.Payment) {},
			change: func(s *budget.Subscription) { s.PayTo = nil },
			code:   x402.ApprovalRequired, why: "pays " + payee + " for the first time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			s := ordered
			if c.change != nil {
				c.change(&s)
			}
			w.allow(func(r *Rules) {
				r.Budget.ApproveAbove, r.Budget.Subscriptions = 1000,
					map[string]budget.Subscription{s.Name: s}
			})
			p := w.reserve(900_000, func(p *history.Payment) {
				p.IdempotencyKey, p.Fingerprint = s.Key(s.Since), s.Request
				c.row(p)
			})
			_, err := w.client.SignTransfer(t.Context(), w.transfer(p))
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			requireCode(t, err, c.code)
			require.ErrorContains(t, err, c.why)
		})
	}
}
