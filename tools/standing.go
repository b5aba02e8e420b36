package tools

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Standing is how a service stands at a moment; maps are by agent.
type Standing struct {
	Held, Unknown     map[string]money.Dollars // of payments without an end
	Waiting, Sessions map[string]int           // approvals, and who is connected
	Frozen            bool
}

// maxStanding bounds the payments that are added up: there are so many only where something is wrong.
const maxStanding = 10_000

var errNotOpen = errors.New("the wallet is not open")

// Standing reads the ledger once for how all agents stand. It does not open the wallet. With an error it
// still has the sessions.
func (s *Server) Standing(ctx context.Context) (Standing, error) {
	out := Standing{Held: map[string]money.Dollars{}, Unknown: map[string]money.Dollars{},
		Waiting: map[string]int{}, Sessions: s.sessions.now()}
	if s.overHTTP != nil {
		s.overHTTP.addTo(out.Sessions)
	}
	w, done := s.lazy.last()
	if w == nil {
		return out, errNotOpen
	}
	defer done()
	open, err := w.Store.Unfinished(ctx, "", maxStanding)
	if err != nil {
		return out, err
	}
	for _, p := range open {
		if p.State == history.Unknown {
			out.Unknown[p.Agent] += p.Price
		} else {
			out.Held[p.Agent] += p.Price
		}
	}
	approvals, err := w.Store.Approvals(ctx)
	if err != nil {
		return out, err
	}
	for _, a := range approvals {
		if a.State == history.Pending {
			out.Waiting[a.Agent]++
		}
	}
	freezes, err := w.Store.Freezes(ctx)
	for _, f := range freezes {
		out.Frozen = out.Frozen || f.Account == ""
	}
	return out, err
}

// outcomeFailed is the outcome of a call that ended with an error's code; others are pay's statuses.
const outcomeFailed = "failed"

// counted tells Count what a call that may pay came to.
func (s *Server) counted(ctx context.Context, began time.Time, bought pay.Result, err error) {
	if s.Count == nil {
		return
	}
	outcome, code, paid := bought.Status, x402.Code(""), money.Dollars(0)
	if err != nil {
		outcome, code = outcomeFailed, x402.AsError(err).Code
	}
	if outcome == pay.StatusPaid || outcome == pay.StatusUnserved {
		paid = priceIn(bought.Price)
	}
	s.Count(pay.AgentFrom(ctx), outcome, string(code), paid, time.Since(began))
}

// priceIn is a price as a result says it; what is none is nothing.
func priceIn(price string) money.Dollars {
	d, err := money.ParseDollars(strings.TrimPrefix(price, "$"))
	if err != nil {
		return 0
	}
	return d
}

// sessionCount counts sessions by agent.
type sessionCount struct {
	mu sync.Mutex
	by map[string]int
}

func (c *sessionCount) add(agent string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[agent] += n
}

func (c *sessionCount) now() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := map[string]int{}
	maps.Copy(now, c.by)
	return now
}
