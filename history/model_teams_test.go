package history

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/budget"
	budgets "x402-wallet/budget/standing"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// The model's teams: who is in which, said outright, where the rules say it by names and patterns.

type modelTeam struct {
	name, parent string
	day, month   money.Dollars
	rate         int // in a minute; 0: none
}

type modelTree struct {
	teams  map[string]modelTeam
	teamOf map[string]string // by agent; missing: in none
	starIs string            // the agent whom its team has by "a*"; "": nobody
}

// has reports whether an agent is in a team, or in one below it.
func (m *modelTree) has(team, agent string) bool {
	for at := m.teamOf[agent]; at != ""; at = m.teams[at].parent {
		if at == team {
			return true
		}
	}
	return false
}

// drawTree draws up to three teams, each below an earlier one or the owner, and who is in them.
func (m *machine) drawTree(t *rapid.T, dollars func(int64, string) money.Dollars) {
	m.tree = modelTree{teams: map[string]modelTeam{}, teamOf: map[string]string{}}
	above := []string{""}
	for i := range rapid.IntRange(0, 3).Draw(t, "teams") {
		team := modelTeam{name: fmt.Sprint("team-", i), parent: rapid.SampledFrom(above).Draw(t, "parent"),
			day: dollars(50, "a team's day"), month: dollars(80, "a team's month")}
		if rapid.IntRange(0, 3).Draw(t, "a team's rate") == 0 {
			team.rate = rapid.IntRange(1, 4).Draw(t, "a minute")
		}
		m.tree.teams[team.name] = team
		above = append(above, team.name)
	}
	for _, agent := range agentNames[1:] {
		if team := rapid.SampledFrom(above).Draw(t, agent+"'s team"); team != "" {
			m.tree.teamOf[agent] = team
		}
	}
	if m.tree.teamOf["ann"] != "" && m.tree.teamOf["amy"] != "" && rapid.Bool().Draw(t, "by a pattern") {
		m.tree.starIs = "amy" // ann's name is more specific
	}
}

// unlimitedTeams takes the limits off that are about money.
func (m *machine) unlimitedTeams(most money.Dollars) {
	for name, team := range m.tree.teams {
		team.day, team.month = most, most
		m.tree.teams[name] = team
	}
}

// budgetTeams are the teams as the rules have them.
func (m *modelTree) budgetTeams() budget.Teams {
	list := budget.Teams{}
	for name, team := range m.teams {
		made := budget.Team{Parent: team.parent, Day: &team.day, Month: &team.month, Rate: team.rate}
		for _, agent := range agentNames {
			switch {
			case m.teamOf[agent] != name:
			case agent == m.starIs:
				made.Agents = append(made.Agents, "a*")
			default:
				made.Agents = append(made.Agents, agent)
			}
		}
		list[name] = made
	}
	return list
}

// fitsTeams calls within for the windows of all teams that an agent is in.
func (m *model) fitsTeams(agent string, day, month time.Time, within func(money.Dollars,
	func(*modelRow) bool)) {
	for name, team := range m.tree.teams {
		if m.tree.has(name, agent) {
			within(team.day, func(o *modelRow) bool {
				return m.tree.has(name, o.agent) && !o.created.Before(day)
			})
			within(team.month, func(o *modelRow) bool {
				return m.tree.has(name, o.agent) && !o.created.Before(month)
			})
		}
	}
}

// busyTeam reports whether the rate of a team that an agent is in is reached.
func (m *model) busyTeam(agent string) bool {
	for name, team := range m.tree.teams {
		n := 0
		for _, o := range m.rows {
			if m.tree.has(name, o.agent) && o.created.After(m.at().Add(-time.Minute)) {
				n++
			}
		}
		if team.rate > 0 && m.tree.has(name, agent) && n >= team.rate {
			return true
		}
	}
	return false
}

// checkTeams: of each team the ledger has what the model adds up, and no more than its limit.
func (m *machine) checkTeams(t *rapid.T, tx *tx) {
	if m.newest.IsZero() {
		return
	}
	day, month, tree := beginOfDay(m.newest), beginOfMonth(m.newest), m.tree.budgetTeams()
	for name, team := range m.tree.teams {
		for since, most := range map[time.Time]money.Dollars{day: team.day, month: team.month} {
			want := m.sum(func(r *modelRow) bool {
				return m.tree.has(name, r.agent) && !r.created.Before(since)
			})
			got := must.Get(tx.used(budget.Window{Team: name, Teams: tree, Since: since}))(t)
			require.Equal(t, want, got, "%s since %s", name, since)
			require.LessOrEqual(t, want.Spent+want.Held, most, "%s since %s", name, since)
		}
	}
}

// queryOf is what is asked about a payment where it is signed.
func (m *machine) queryOf(p Payment) budget.Query {
	tree := m.tree.budgetTeams()
	return budget.Query{HostEntries: []string{"a.example", "b.example"}, Agent: p.Agent,
		Teams: tree.Path(p.Agent), Tree: tree}
}

// checkReport: the owner's report of all teams and agents is what the model adds up.
func (m *machine) checkReport(t *rapid.T, s *Store) {
	tree := m.tree.budgetTeams()
	if len(tree) == 0 || m.newest.IsZero() {
		return
	}
	rules := budget.Rules{Teams: tree}
	f := must.Get(s.Facts(context.Background(), Question{Rules: budgets.TreeQuery(rules)}))(t)
	month := beginOfMonth(f.Now)
	for name := range tree {
		want := m.sum(func(r *modelRow) bool { return m.tree.has(name, r.agent) && !r.created.Before(month) })
		require.Equal(t, want, f.Used.Teams[name].Month, name)
	}
	for _, agent := range agentNames[1:] {
		want := m.sum(func(r *modelRow) bool { return r.agent == agent && !r.created.Before(month) })
		require.Equal(t, want, f.Used.Agents[agent].Month, agent)
	}
}
