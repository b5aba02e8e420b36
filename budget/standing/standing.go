// Package standing says how the owner's budgets stand: what is spent, held and left of each. It decides
// nothing. What must stay true: it shows the limits and windows that package budget decides by.
package standing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Line is one budget as the outside sees it. Limit nil: none is set.
type Line struct {
	Limit     *money.Dollars `json:"limit"`
	Spent     money.Dollars  `json:"spent"`
	Held      money.Dollars  `json:"held"`
	Remaining *money.Dollars `json:"remaining"`
	ResetsAt  string         `json:"resetsAt,omitempty"`
}

// Report is what is left of each budget.
type Report struct {
	PerCall money.Dollars `json:"perCall"`
	Session Line          `json:"session"`
	Day     Line          `json:"day"`
	Month   Line          `json:"month"`
	Agent   *AgentReport  `json:"agent,omitempty"` // of the agent that asks; nil: it has no name
	// those that the agent is in, its own first
	Teams []TeamReport `json:"teams,omitempty"`
}

// HostLine is a host's own budget of the day, by the owner's name for it.
type HostLine struct {
	Host string
	Line
}

// Query says which facts Of and Hosts need for an agent.
func Query(r budget.Rules, agent string) budget.Query {
	q := budget.Query{HostEntries: hostEntries(r), Teams: r.Teams.Path(agent), Tree: r.Teams}
	own := r.Nodes(agent)[0]
	if agent != "" && (own.Day != nil || own.Month != nil) {
		q.Agent = agent
	}
	return q
}

func hostEntries(r budget.Rules) []string { return slices.Sorted(maps.Keys(r.HostDay)) }

// Of shows the windows as they stand, and those of an agent ("": none) and its teams.
func Of(r budget.Rules, agent string, facts budget.Facts) Report {
	session := lineOf(cmp.Or(r.Session, facts.Session.Cap), facts.Used.Session,
		facts.Session.Last.Add(budget.SessionIdle))
	return Report{PerCall: r.PerCall, Session: session,
		Day:   lineOf(&r.Day, facts.Used.Day, dayEnds(facts)),
		Month: lineOf(&r.Month, facts.Used.Month, monthEnds(facts)),
		Agent: agentReport(r, agent, facts), Teams: teamReports(r, agent, facts)}
}

// Hosts shows the hosts' budgets as they stand, by name.
func Hosts(r budget.Rules, facts budget.Facts) (list []HostLine) {
	for _, entry := range hostEntries(r) {
		limit := r.HostDay[entry]
		list = append(list, HostLine{Host: entry,
			Line: lineOf(&limit, facts.Used.HostDay[entry], dayEnds(facts))})
	}
	return list
}

func dayEnds(facts budget.Facts) time.Time { return budget.DayOf(facts.Now).AddDate(0, 0, 1) }

func monthEnds(facts budget.Facts) time.Time { return budget.MonthOf(facts.Now).AddDate(0, 1, 0) }

func lineOf(limit *money.Dollars, use budget.Use, resets time.Time) Line {
	shown := Line{Limit: limit, Spent: use.Spent, Held: use.Held, ResetsAt: x402.Stamp(resets)}
	if limit != nil {
		left := limit.SubFloor(use.Total())
		shown.Remaining = &left
	}
	return shown
}
