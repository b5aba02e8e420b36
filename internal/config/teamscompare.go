package config

import (
	"slices"

	"x402-wallet/budget"
)

// stricterTeams reports whether a change of the teams provably lets no agent do more, whatever its name: each
// agent is still in every team that it was in, none of these has a limit that is higher, and it pays from the
// same account. So the sums that count against a team's limits only grow, too.
func stricterTeams(from, to any) bool {
	before, after := from.(map[string]Team), to.(map[string]Team)
	was, now := Tree(before), Tree(after)
	for name, team := range before {
		changed, still := after[name]
		if !still || !changed.isWithin(team) || !hasAll(now.Up(name), was.Up(name)) ||
			now.AccountOf(name) != was.AccountOf(name) {
			return false
		}
	}
	for name, team := range after {
		for _, each := range team.Agents {
			isNew := !slices.Contains(before[name].Agents, each)
			if isNew && (now.AccountOf(name) != "" || takesAgents(name, each, before, now)) {
				return false
			}
		}
	}
	return true
}

// takesAgents reports whether a new pattern of a team can take an agent out of a team that it was in.
func takesAgents(team, pattern string, before map[string]Team, after budget.Teams) bool {
	for name, was := range before {
		mayTake := func(from string) bool {
			return budget.Specific(from) <= budget.Specific(pattern) && overlap(pattern, from)
		}
		isStillIn := name == team || slices.Contains(after.Up(team), name)
		if !isStillIn && slices.ContainsFunc(was.Agents, mayTake) {
			return true
		}
	}
	return false
}

// isWithin reports whether a team has all agents that it had, and no higher limit.
func (t Team) isWithin(was Team) bool {
	return hasAll(t.Agents, was.Agents) && isTighter(t.PerCall, was.PerCall) && isTighter(t.Day, was.Day) &&
		isTighter(t.Month, was.Month) && isSlower(t.Rate, was.Rate) &&
		fewerHosts(was.AllowHosts, t.AllowHosts)
}

// hasAll reports whether a list has everything that another one has.
func hasAll(list, of []string) bool {
	isMissing := func(s string) bool { return !slices.Contains(list, s) }
	return !slices.ContainsFunc(of, isMissing)
}

// isSlower compares two rates; 0 is none.
func isSlower(now, was int) bool { return was == 0 || (now != 0 && now <= was) }

// stricterEach reports whether every pattern that had limits has them still, and no higher ones.
func stricterEach(from, to any) bool {
	after := to.(map[string]eachAgent)
	for name, was := range from.(map[string]eachAgent) {
		now, still := after[name]
		isWithin := still && isTighter(now.PerCall, was.PerCall) && isTighter(now.Day, was.Day) &&
			isTighter(now.Month, was.Month) && isSlower(now.Rate, was.Rate)
		if !isWithin {
			return false
		}
	}
	return true
}
