package budget

import (
	"maps"
	"slices"

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

// ReportQuery says which facts Report and ReportHosts need for an agent.
func (r Rules) ReportQuery(agent string) Query {
	return Query{HostEntries: slices.Sorted(maps.Keys(r.HostDay)), Agent: r.summed(agent),
		Teams: r.Teams.Path(agent), Tree: r.Teams}
}

// Report shows the windows as they stand, and those of an agent ("": none) and its teams.
func (r Rules) Report(agent string, facts Facts) Report {
	rows := r.windows(facts, nil, "")
	return Report{PerCall: r.PerCall, Session: rows[0].line(), Day: rows[1].line(), Month: rows[2].line(),
		Agent: r.reportAgent(agent, facts), Teams: r.reportTeams(agent, facts)}
}

// ReportHosts shows the hosts' budgets as they stand, by name.
func (r Rules) ReportHosts(facts Facts) (list []HostLine) {
	entries := r.ReportQuery("").HostEntries
	rows := r.windows(facts, entries, "")
	hosts := rows[len(rows)-len(entries):]
	for i, entry := range entries {
		list = append(list, HostLine{Host: entry, Line: hosts[i].line()})
	}
	return list
}

func (w window) line() Line {
	shown := Line{Limit: w.limit, Spent: w.use.Spent, Held: w.use.Held, ResetsAt: stamp(w.resets)}
	if w.limit != nil {
		left := w.limit.SubFloor(w.use.Total())
		shown.Remaining = &left
	}
	return shown
}
