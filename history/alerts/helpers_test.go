package alerts

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// perHost is how many questions about one host wait at a time: package history's bound.
const perHost = 5

func quoteOf(b byte) (q [32]byte) { q[0] = b; return q }

// askedAbout asks about a quote.
func askedAbout(t *testing.T, s *history.Store, quote byte) history.Approval {
	t.Helper()
	p := historytest.Hold(250_000).Payment
	return must.Get(asking.Asker{Store: s}.AskApproval(t.Context(), history.Approval{
		Quote: quoteOf(quote), Host: p.Host,
		Method: p.Method, URL: p.URL, Network: p.Network, Asset: p.Asset, Amount: p.Amount, Price: p.Price,
		PayTo: p.PayTo}))(t)
}

// decide asks rules about a hold; the hold has the decision then.
func decide(s *history.Store, rules budget.Rules, h *history.Hold) error {
	p := h.Payment
	ask := budget.Ask{Agent: p.Agent, Price: p.Price, Host: p.Host, Payee: budget.Payee{Network: p.Network,
		Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()}}
	f, err := s.Facts(context.Background(), history.Question{Rules: rules.Query(ask), Payment: p})
	if err != nil {
		return err
	}
	h.DecidedAt, h.DecidedHead = f.Now, f.Head
	h.Decision, err = rules.Decide(ask, f.Facts)
	return err
}

// reserveBy holds money by rules; after a change that matters it asks them again.
func reserveBy(s *history.Store, rules budget.Rules, h history.Hold) (history.Payment, error) {
	for {
		if err := decide(s, rules, &h); err != nil {
			return history.Payment{}, err
		}
		p, err := s.Reserve(context.Background(), h)
		if !errors.Is(err, history.ErrMoved) {
			return p, err
		}
	}
}
