//go:build !race

package pay

import (
	"fmt"
	"math/rand/v2"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// Worlds with agents: several of them, and callers without a name, buy the same things under the same keys,
// each with windows of its own. What the umpire looks for besides:
//
//	I7  what settled and can still settle of one agent's never exceeds its own windows, nobody is answered
//	    from, goes on with, or signs in by what another one bought

// agentsEvery is how many seeds there are for one with agents.
const agentsEvery = 3

// drawAgents gives purchases to agents, and some of them the same one. It draws from numbers of its own, so
// that worlds without agents stay as they are.
func (s *sim) drawAgents() {
	if s.seed%agentsEvery != 1 {
		return
	}
	rng := rand.New(rand.NewPCG(s.seed, 0xa9e27)) //nolint:gosec // a test's
	names := []string{"ann", "bob", "cy"}[:2+rng.IntN(2)]
	dollars := func(list ...int64) *money.Dollars {
		d := money.Dollars(list[rng.IntN(len(list))])
		return &d
	}
	s.rules.Agents = map[string]budget.Agent{}
	for _, name := range names {
		own := budget.Agent{}
		if rng.IntN(4) > 0 {
			own.Day = dollars(5, 10, 10, 15, 20, 40)
		}
		if rng.IntN(2) == 0 {
			own.Month = dollars(10, 15, 20, 60)
		}
		s.rules.Agents[name] = own
	}
	s.drawTeams(names)
	callers := append([]string{""}, names...)
	for _, pu := range s.purchases {
		pu.agent = callers[rng.IntN(len(callers))]
	}
	for range 1 + rng.IntN(3) { // the same for another agent, or once more for the same one
		of := s.purchases[rng.IntN(len(s.purchases))]
		s.purchases = append(s.purchases, &purchase{n: len(s.purchases) + 1, url: of.url, key: of.key,
			agent: callers[rng.IntN(len(callers))]})
	}
}

// whose is a URL or a key as an agent's own; "" stays "".
func whose(agent, what string) string {
	if agent == "" || what == "" {
		return what
	}
	return agent + "'s " + what
}

// checkAgents is I7 for the agents' windows.
func (s *sim) checkAgents() {
	s.checkTeams()
	for _, id := range s.order {
		of := s.rows[id]
		own, day := s.rules.Agents[of.agent], of.created.Truncate(24*time.Hour)
		if own.Day != nil {
			s.over(whose(of.agent, "day"), *own.Day, func(r *rowSeen) bool {
				return r.agent == of.agent && r.created.Truncate(24*time.Hour).Equal(day)
			})
		}
		if own.Month != nil {
			s.over(whose(of.agent, "month"), *own.Month, func(r *rowSeen) bool {
				return r.agent == of.agent && r.created.Month() == of.created.Month()
			})
		}
	}
}

// answeredFrom is I7 for what a call was answered from.
func (s *sim) answeredFrom(c *call, row *rowSeen) {
	if row.agent != c.of.agent {
		s.fail("I7: %q was answered from what %q bought", c.of.agent, row.agent)
	}
}

// boughtBefore is I7 for a sign-in: whoever has a name signs in for what they bought themselves.
func (s *sim) boughtBefore(c *call) {
	if c.of.agent == "" {
		return
	}
	for _, r := range s.rows {
		if r.agent == c.of.agent && r.url == c.of.url {
			return
		}
	}
	s.fail("I7: %q signs in for %s, which it never bought", c.of.agent, c.of.url)
}

// compareAgents adds up at the end what the chain executed for each agent on each day, and asks the ledger.
func (s *sim) compareAgents() {
	s.compareTeams()
	for _, id := range s.order {
		of := s.rows[id]
		since := of.created.Truncate(24 * time.Hour)
		if of.agent == "" {
			continue
		}
		var want uint64
		for _, g := range s.sigs {
			if r := s.rows[g.row]; g.settled && r != nil && r.agent == of.agent && !r.created.Before(since) {
				want += g.worth()
			}
		}
		f, err := s.facts(budget.Query{At: since, Agent: of.agent})
		if got := f.Used.Agent.Day; err != nil || got != (budget.Use{Spent: money.Dollars(want)}) {
			s.fail("I7: the ledger says that %s spent %+v since %s, the chain executed %d: %v", of.agent, got,
				since, want, err)
		}
	}
}

// told is how a purchase is told in the story.
func (pu *purchase) told() string {
	of := ""
	if pu.agent != "" {
		of = " of " + pu.agent
	}
	return fmt.Sprintf("purchase %d%s: pay %s key %q", pu.n, of, pu.url, pu.key)
}
