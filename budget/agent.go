package budget

import (
	"slices"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Agent is what one of the agents that share the wallet may do, below what the owner lets all of them do.
type Agent struct {
	PerCall    *money.Dollars // nil: the owner's alone, like the next two
	Day, Month *money.Dollars
	AllowHosts []string // of those that the owner allows; empty: all of them
}

// hasWindows reports whether something is summed for the agent.
func (a Agent) hasWindows() bool { return a.Day != nil || a.Month != nil }

// agentLayer names an agent's limits, as a layer of a refusal; which of them it is, its detail "window".
const agentLayer = "agent"

// perCall names the limit for one call, the owner's and an agent's.
const perCall = "per_call"

// CheckAgent refuses an agent that the owner's rules do not have, because it was revoked. A caller without a
// name is none.
func (r Rules) CheckAgent(name string) error {
	if _, known := r.Agents[name]; known || name == "" {
		return nil
	}
	return x402.Errorf(x402.PolicyDenied, "the owner's rules have no agent %s", x402.Quote(name)).
		WithHint("it was revoked: nothing is paid for it any more").WithDetail("agent", name).
		WithCommand(x402.Command("agents", "list"), "Your rules do not have the agent "+x402.Brief(name)+
			" any more: please add it again if it is to pay.")
}

// checkAgentHost applies an agent's own allow_hosts, to a host that the owner's rules allow.
func (r Rules) checkAgentHost(name, host string) error {
	allowed := r.Agents[name].AllowHosts
	covers := func(entry string) bool { return hostMatches(entry, host) }
	if len(allowed) == 0 || slices.ContainsFunc(allowed, covers) {
		return nil
	}
	return x402.Errorf(x402.PolicyDenied, "%s is not among the hosts the owner allows the agent %s",
		x402.Brief(host), name).WithDetail("agent", name).
		WithHint("use another seller; which ones are paid is the owner's to say").
		WithCommand(x402.Command("policy", "allow", host, "--agent", name), "Your rules do not let the "+
			"agent "+name+" pay "+x402.Brief(host)+": please allow it if you want what it sells.")
}

// agentCall is an agent's own per_call as a window that nothing is ever in; false: it has none.
func (r Rules) agentCall(name string) (window, bool) {
	limit := r.Agents[name].PerCall
	return window{name: agentLayer, part: perCall, limit: limit, covers: Window{Agent: name}}, limit != nil
}

// agentWindows are an agent's own day and month, as far as it has them.
func (r Rules) agentWindows(name string, used AgentUsage, now time.Time) (rows []window) {
	a, day, month := r.Agents[name], DayOf(now), MonthOf(now)
	if a.Day != nil {
		rows = append(rows, window{name: agentLayer, part: "day", limit: a.Day,
			covers: Window{Agent: name, Since: day}, use: used.Day, resets: day.AddDate(0, 0, 1)})
	}
	if a.Month != nil {
		rows = append(rows, window{name: agentLayer, part: "month", limit: a.Month,
			covers: Window{Agent: name, Since: month}, use: used.Month, resets: month.AddDate(0, 1, 0)})
	}
	return rows
}

// AgentReport is what is left to one agent of its own limits; those that it has none of are missing.
type AgentReport struct {
	Name    string         `json:"name"`
	PerCall *money.Dollars `json:"perCall,omitempty"`
	Day     *Line          `json:"day,omitempty"`
	Month   *Line          `json:"month,omitempty"`
}

// reportAgent shows an agent's windows as they stand; nil for a caller without a name.
func (r Rules) reportAgent(name string, facts Facts) *AgentReport {
	if name == "" {
		return nil
	}
	shown := &AgentReport{Name: name, PerCall: r.Agents[name].PerCall}
	for _, w := range r.agentWindows(name, facts.Used.Agent, facts.Now.UTC()) {
		line := w.line()
		switch w.part {
		case "day":
			shown.Day = &line
		case "month":
			shown.Month = &line
		}
	}
	return shown
}
