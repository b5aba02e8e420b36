package tools

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"x402-wallet/budget/standing"
	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/internal/metrics"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// maxStanding bounds the payments that are added up: there are so many only where something is wrong.
const maxStanding = 10_000

// maxBudgets bounds the agents whose own budgets are read, one after the other, each time.
const maxBudgets = 250

var errNotOpen = errors.New("the wallet is not open")

// VerifySeals compares the rules with the sealed ones, as before a payment: tighter rules are sealed by that.
// It opens the wallet.
func (s *Server) VerifySeals(ctx context.Context) error {
	w, done, err := s.Wallet(ctx)
	if err != nil {
		return err
	}
	defer done()
	return w.Engine.Guard.VerifySeals(ctx)
}

// Unlocked reports whether the wallet is open and signs without asking anybody.
func (s *Server) Unlocked() bool {
	w, done := s.lazy.last()
	if w == nil {
		return false
	}
	defer done()
	return !w.Keys.Locked()
}

// Standing reads the ledger for how all agents stand. It does not open the wallet. With an error it still has
// the sessions.
func (s *Server) Standing(ctx context.Context) (out metrics.Standing, err error) {
	sessions := s.sessions.now()
	if s.overHTTP != nil {
		s.overHTTP.addTo(sessions)
	}
	w, done := s.lazy.last()
	if w == nil {
		return metrics.Standing{Sessions: sessions}, errNotOpen
	}
	defer done()
	for agent := range w.ofEach() {
		sessions[agent] += 0 // nobody is connected: a figure, too
	}
	out, err = w.Standing(ctx)
	out.Sessions = sessions
	return out, err
}

// Standing reads the ledger for how all agents stand. No node is asked.
func (w *Wallet) Standing(ctx context.Context) (out metrics.Standing, err error) {
	out = metrics.Standing{Now: w.Engine.Now(), Held: w.ofEach(), Unknown: w.ofEach(), Waiting: w.ofEach()}
	out.Working, out.InQueue = w.Engine.Queue()
	for _, left := range w.Engine.LastFunds() {
		out.Balances = append(out.Balances, metrics.Balance(left))
	}
	if err := w.Store.InPlace(); err != nil {
		return out, err
	}
	open, err := w.Store.Unfinished(ctx, "", maxStanding)
	if err != nil {
		return out, err
	}
	for _, p := range open {
		if p.State == history.Unknown {
			out.Unknown[p.Agent] = out.Unknown[p.Agent].Add(p.Price, p.Created, w.Engine.IsOverdue(p))
		} else {
			out.Held[p.Agent] = out.Held[p.Agent].Add(p.Price, p.Created, false)
		}
	}
	approvals, err := report.Questions(ctx, w.Store)
	if err != nil {
		return out, err
	}
	for _, a := range approvals {
		if a.State == history.Pending {
			out.Waiting[a.Agent] = out.Waiting[a.Agent].Add(a.Price, a.Created, false)
		}
	}
	freezes, err := w.Store.Freezes(ctx)
	if err != nil {
		return out, err
	}
	for _, f := range freezes {
		if f.Account == "" {
			out.Frozen = true
		} else {
			out.FrozenAccounts++
		}
	}
	out.Budgets, err = w.standingBudgets(ctx)
	return out, err
}

// ofEach has nothing of each agent yet: a figure that is missing looks as if nobody had counted.
func (w *Wallet) ofEach() map[string]metrics.Open {
	all := map[string]metrics.Open{"": {}}
	for agent := range w.Engine.Rules.Agents {
		all[agent] = metrics.Open{}
	}
	return all
}

// standingBudgets are the owner's limits, and those of agents that have some of their own.
func (w *Wallet) standingBudgets(ctx context.Context) (list []metrics.Budget, err error) {
	rules := w.Engine.Rules
	facts, err := w.Engine.BudgetFacts(pay.WithAgent(ctx, ""))
	if err != nil {
		return nil, err
	}
	add := func(window, agent, host string, line *standing.Line) {
		if line != nil {
			list = append(list, metrics.Budget{Window: window, Agent: agent, Host: host, Limit: line.Limit,
				Used: line.Spent.Add(line.Held)})
		}
	}
	report := standing.Of(rules, "", facts)
	add("session", "", "", &report.Session)
	add("day", "", "", &report.Day)
	add("month", "", "", &report.Month)
	for _, h := range standing.Hosts(rules, facts) {
		add("day", "", h.Host, &h.Line)
	}
	agents := slices.Sorted(maps.Keys(rules.Agents))
	agents = slices.DeleteFunc(agents, func(name string) bool {
		return rules.Agents[name].Day == nil && rules.Agents[name].Month == nil
	})
	for _, name := range agents[:min(len(agents), maxBudgets)] {
		facts, err := w.Engine.BudgetFacts(pay.WithAgent(ctx, name))
		if err != nil {
			return list, err
		}
		report := standing.Of(rules, name, facts)
		add("day", name, "", report.Agent.Day)
		add("month", name, "", report.Agent.Month)
	}
	return list, nil
}

// outcomeFailed is the outcome of a call that ended with an error's code; others are pay's statuses.
const outcomeFailed = "failed"

// counted tells Count what a call that may pay came to.
func (s *Server) counted(ctx context.Context, began time.Time, bought pay.Result, err error) {
	if s.Count == nil {
		return
	}
	call := metrics.Call{Agent: pay.AgentFrom(ctx), Outcome: bought.Status, Took: time.Since(began)}
	if err != nil {
		call.Outcome, call.Code = outcomeFailed, string(x402.AsError(err).Code)
	}
	if call.Outcome == pay.StatusPaid || call.Outcome == pay.StatusUnserved {
		call.Paid, call.Network = priceIn(bought.Price), bought.Network
	}
	s.Count(call)
}

// priceIn is a price as a result says it; what is none is nothing.
func priceIn(price string) money.Dollars {
	d, err := money.ParseDollars(strings.TrimPrefix(price, "$"))
	if err != nil {
		return 0
	}
	return d
}

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
