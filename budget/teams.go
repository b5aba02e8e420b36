package budget

import (
	"math"
	"slices"
	"strings"

	"x402-wallet/x402/money"
)

// Team is a group of agents with limits of its own, below those of the team that it is a part of and of the
// owner.
type Team struct {
	Agents     []string       // names, and patterns of names
	Parent     string         // the team that it is a part of; "": of none
	PerCall    *money.Dollars // nil: no limit of its own, like the next two
	Day, Month *money.Dollars
	Rate       int      // payments per minute; 0: no limit of its own
	AllowHosts []string // of those that are allowed above it; empty: all of them
	Account    bool     // its agents pay from an account of its own, which has its name
}

// Teams are the owner's, by name. An agent is in one of them at most, and so in all that this one is a part
// of; a caller without a name is in none. That no two fit an agent equally well, and that no team is above
// itself, is for whoever reads them to see to.
type Teams map[string]Team

// MaxDepth is how many teams may stand one above the other: each is a lock, or a sum, for every payment.
const MaxDepth = 8

// Of is the team that an agent is in; "": none. Of several that have a pattern for it, it is the one with the
// most specific: a name, or else the longest text before the first "*".
func (t Teams) Of(agent string) (team string) {
	best := -1
	for name, each := range t {
		for _, pattern := range each.Agents {
			fits := Specific(pattern)
			isBetter := fits > best || (fits == best && name < team)
			if agent != "" && isBetter && Matches(pattern, agent) {
				team, best = name, fits
			}
		}
	}
	return team
}

// Path is the team of an agent, and those above it, in this order.
func (t Teams) Path(agent string) []string { return t.Up(t.Of(agent)) }

// Up is a team, and those above it, in this order; none for "".
func (t Teams) Up(team string) (path []string) {
	for len(path) < MaxDepth {
		at, known := t[team]
		if !known {
			break
		}
		path, team = append(path, team), at.Parent
	}
	return path
}

// Account is the account that an agent pays from: of its nearest team that has one; "": the wallet's own.
func (t Teams) Account(agent string) string { return t.AccountOf(t.Of(agent)) }

// AccountOf is the account that the agents of a team pay from.
func (t Teams) AccountOf(team string) string {
	for _, name := range t.Up(team) {
		if t[name].Account {
			return name
		}
	}
	return ""
}

// Have reports whether an agent is in a team, or in one below it.
func (t Teams) Have(team, agent string) bool { return slices.Contains(t.Path(agent), team) }

// Sum adds up what the agents of a team used; used is by agent.
func (t Teams) Sum(team string, used map[string]Use) (sum Use) {
	for agent, use := range used {
		if t.Have(team, agent) {
			sum.Spent, sum.Held = sum.Spent.Add(use.Spent), sum.Held.Add(use.Held)
		}
	}
	return sum
}

// Matches reports whether a pattern means a name: a "*" in it stands for any letters, or none; all else for
// itself.
func Matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == name
	}
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, behind, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = behind
	}
	return true
}

// Specific orders patterns: a name is more specific than any pattern, and one with more text before its first
// "*" than one with less.
func Specific(pattern string) int {
	if at := strings.IndexByte(pattern, '*'); at >= 0 {
		return at
	}
	return math.MaxInt
}
