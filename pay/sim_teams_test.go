//go:build !race

package pay

import (
	"fmt"
	"math/rand/v2"
	"time"

	"x402-wallet/budget"
	"x402-wallet/budget/standing"
	"x402-wallet/x402/money"
)

// Worlds whose agents are in teams, which stand above each other. What the umpire looks for besides:
//
//	I8  what settled and can still settle of one team's, and of those below it, never exceeds its own
//	    windows; nor do its payments of a minute its rate

// simTeams is who is in which team, said outright, where the rules say it by names and patterns.
type simTeams struct {
	of     map[string]string // by agent
	parent map[string]string // by team
}

func (m simTeams) has(team, agent string) bool {
	for at := m.of[agent]; at != ""; at = m.parent[at] {
		if at == team {
			return true
		}
	}
	return false
}

// drawTeams puts the agents of a world into teams, in two of three worlds with agents.
func (s *sim) drawTeams(names []string) {
	rng := rand.New(rand.NewPCG(s.seed, 0x7ea35)) //nolint:gosec // a test's
	s.teams = simTeams{of: map[string]string{}, parent: map[string]string{}}
	if rng.IntN(3) == 0 {
		return
	}
	s.rules.Teams = budget.Teams{}
	limit := func(list ...int64) *money.Dollars { return new(money.Dollars(list[rng.IntN(len(list))])) }
	above := []string{""}
	for i := range 1 + rng.IntN(3) {
		name := fmt.Sprint("team", i)
		team := budget.Team{Parent: above[rng.IntN(len(above))]}
		if rng.IntN(4) > 0 {
			team.Day = limit(10, 15, 20, 40)
		}
		if rng.IntN(2) == 0 {
			team.Month = limit(15, 20, 60)
		}
		if rng.IntN(4) == 0 {
			team.Rate = 1 + rng.IntN(3)
		}
		s.rules.Teams[name], s.teams.parent[name] = team, team.Parent
		above = append(above, name)
	}
	for _, agent := range names {
		name := above[rng.IntN(len(above))]
		if name == "" {
			continue
		}
		team, pattern := s.rules.Teams[name], agent
		if rng.IntN(2) == 0 {
			pattern = agent[:1] + "*" // no two begin alike
		}
		team.Agents = append(team.Agents, pattern)
		s.rules.Teams[name], s.teams.of[agent] = team, name
	}
}

// checkTeams is I8.
func (s *sim) checkTeams() {
	for name, team := range s.rules.Teams {
		for _, id := range s.order {
			of := s.rows[id]
			if !s.teams.has(name, of.agent) {
				continue
			}
			day := of.created.Truncate(24 * time.Hour)
			if team.Day != nil {
				s.over(whose(name, "day"), *team.Day, func(r *rowSeen) bool {
					return s.teams.has(name, r.agent) && r.created.Truncate(24*time.Hour).Equal(day)
				})
			}
			if team.Month != nil {
				s.over(whose(name, "month"), *team.Month, func(r *rowSeen) bool {
					return s.teams.has(name, r.agent) && r.created.Month() == of.created.Month()
				})
			}
			s.checkTeamsRate(name, team.Rate, of.created)
		}
	}
}

// checkTeamsRate counts the payments of a team in the minute up to one of them.
func (s *sim) checkTeamsRate(name string, most int, upTo time.Time) {
	n := 0
	for _, id := range s.order {
		at := s.rows[id].created
		if s.teams.has(name, s.rows[id].agent) && !at.After(upTo) && at.After(upTo.Add(-time.Minute)) {
			n++
		}
	}
	if most > 0 && n > most {
		s.fail("I8: %d payments of %s in the minute up to %s, of %d", n, name, upTo, most)
	}
}

// compareTeams adds up at the end what the chain executed for each team, and asks the ledger.
func (s *sim) compareTeams() {
	if len(s.order) == 0 || len(s.rules.Teams) == 0 {
		return
	}
	since := s.rows[s.order[len(s.order)-1]].created.Truncate(24 * time.Hour)
	query := standing.TreeQuery(s.rules)
	query.At = since
	f, err := s.facts(query)
	for name := range s.rules.Teams {
		var want uint64
		for _, g := range s.sigs {
			r := s.rows[g.row]
			if g.settled && r != nil && s.teams.has(name, r.agent) && !r.created.Before(since) {
				want += g.worth()
			}
		}
		if got := f.Used.Teams[name].Day; err != nil || got != (budget.Use{Spent: money.Dollars(want)}) {
			s.fail("I8: the ledger says that %s spent %+v since %s, the chain executed %d: %v", name, got,
				since, want, err)
		}
	}
}
