package budget

import (
	"maps"
	"slices"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The tree of budgets: the owner's own at the root, teams below it, agents below these. Every level of an
// agent's path holds, from the agent up to the owner.

// Node is a level of the tree, with the limits that it has of its own.
type Node struct {
	ID                           string         // "agent:NAME", "team:NAME", or "org" for the owner's own
	PerCall, Session, Day, Month *money.Dollars // nil: no limit
	Rate                         int            // payments per minute; 0: no limit
}

// rootID is the ID of the owner's own budget.
const rootID = "org"

// Nodes are the levels that a payment of an agent counts in, the agent first and the owner last; those that
// have no limit, too. A caller without a name has the owner's alone.
func (r Rules) Nodes(agent string) (nodes []Node) {
	for _, n := range r.path(agent) {
		nodes = append(nodes, Node{ID: n.window().Node(), PerCall: n.perCall.most, Day: n.day.most,
			Month: n.month.most, Rate: n.rate})
	}
	return append(nodes, Node{ID: rootID, PerCall: &r.PerCall, Session: r.Session, Day: &r.Day,
		Month: &r.Month, Rate: r.Rate})
}

// Node is the ID of the level whose payments a window selects.
func (w Window) Node() string {
	switch {
	case w.Agent != "":
		return agentLayer + ":" + w.Agent
	case w.Team != "":
		return teamLayer + ":" + w.Team
	}
	return rootID
}

// Has reports whether a window of an agent, of a team or of all selects an agent's payments.
func (w Window) Has(agent string) bool {
	switch {
	case w.Agent != "":
		return w.Agent == agent
	case w.Team != "":
		return w.Teams.Have(w.Team, agent)
	}
	return true
}

func (w Window) IsAll() bool { return w.Agent == "" && w.Team == "" }

// The layers below the owner's, as a refusal names them; which of the limits it is, its detail "window".
const (
	agentLayer = "agent"
	teamLayer  = "team"
)

// perCall names the limit for one call, the owner's and a node's.
const perCall = "per_call"

// node is a level below the owner's, with what it has of its own.
type node struct {
	layer, name         string
	tree                Teams
	perCall, day, month limit
	rate                int
	hosts               []string // that it may pay; empty: all
}

type limit struct {
	most    *money.Dollars // nil: none
	pattern string         // by which the agent has it; "": it is in the node's own entry
}

// path is the levels of an agent below the owner's: itself and its teams. Nobody's, for "".
func (r Rules) path(agent string) (list []node) {
	if agent == "" {
		return nil
	}
	list = append(list, r.ownNode(agent))
	for _, name := range r.Teams.Path(agent) {
		list = append(list, r.teamNode(name))
	}
	return list
}

func (r Rules) teamNode(name string) node {
	t := r.Teams[name]
	return node{layer: teamLayer, name: name, tree: r.Teams, perCall: limit{most: t.PerCall},
		day: limit{most: t.Day}, month: limit{most: t.Month}, rate: t.Rate, hosts: t.AllowHosts}
}

// ownNode is an agent itself: of its own entry and of those for each agent that means it, the lowest of each
// limit.
func (r Rules) ownNode(agent string) node {
	own := r.Agents[agent]
	n := node{layer: agentLayer, name: agent, perCall: limit{most: own.PerCall}, day: limit{most: own.Day},
		month: limit{most: own.Month}, hosts: own.AllowHosts}
	for _, pattern := range slices.Sorted(maps.Keys(r.EachAgent)) {
		if !Matches(pattern, agent) {
			continue
		}
		each := r.EachAgent[pattern]
		n.perCall.lower(each.PerCall, pattern)
		n.day.lower(each.Day, pattern)
		n.month.lower(each.Month, pattern)
		if each.Rate != 0 && (n.rate == 0 || each.Rate < n.rate) {
			n.rate = each.Rate
		}
	}
	return n
}

func (l *limit) lower(most *money.Dollars, pattern string) {
	if most != nil && (l.most == nil || *most < *l.most) {
		l.most, l.pattern = most, pattern
	}
}

func (n node) hasWindows() bool { return n.day.most != nil || n.month.most != nil }

func (n node) window() Window {
	if n.layer == agentLayer {
		return Window{Agent: n.name}
	}
	return Window{Team: n.name, Teams: n.tree}
}

// since selects the node's payments from a time on.
func (n node) since(t time.Time) Window {
	w := n.window()
	w.Since = t
	return w
}

func (n node) used(u Usage) NodeUsage {
	if n.layer == agentLayer {
		return u.Agent
	}
	return u.Teams[n.name]
}

// call is the node's per_call, as a window that nothing is ever in.
func (n node) call() window {
	return window{name: n.layer, part: perCall, limit: n.perCall.most, pattern: n.perCall.pattern,
		covers: n.window()}
}

// windows are the node's day and month; limit is nil of one that it has not.
func (n node) windows(u Usage, now time.Time) [2]window {
	used, day, month := n.used(u), DayOf(now), MonthOf(now)
	return [2]window{
		{name: n.layer, part: "day", limit: n.day.most, pattern: n.day.pattern, covers: n.since(day),
			use: used.Day, resets: day.AddDate(0, 0, 1)},
		{name: n.layer, part: "month", limit: n.month.most, pattern: n.month.pattern, covers: n.since(month),
			use: used.Month, resets: month.AddDate(0, 1, 0)},
	}
}

// nodeWindows are the windows of an agent's path that have a limit.
func (r Rules) nodeWindows(agent string, facts Facts) (rows []window) {
	for _, n := range r.path(agent) {
		for _, w := range n.windows(facts.Used, facts.Now.UTC()) {
			if w.limit != nil {
				rows = append(rows, w)
			}
		}
	}
	return rows
}

// calls are the limits for one call: the owner's, and those of an agent's path.
func (r Rules) calls(agent string) []window {
	rows := []window{{name: perCall, limit: &r.PerCall}}
	for _, n := range r.path(agent) {
		if n.perCall.most != nil {
			rows = append(rows, n.call())
		}
	}
	return rows
}

// checkNodeHosts applies the allow_hosts of an agent's path, to a host that the owner's rules allow.
func (r Rules) checkNodeHosts(agent, host string) error {
	covers := func(entry string) bool { return HostMatches(entry, host) }
	for _, n := range r.path(agent) {
		if len(n.hosts) == 0 || slices.ContainsFunc(n.hosts, covers) {
			continue
		}
		return x402.Errorf(x402.PolicyDenied, "%s is not among the hosts the owner allows the %s %s",
			x402.Brief(host), n.layer, n.name).WithDetail(n.layer, n.name).
			WithHint("use another seller; which ones are paid is the owner's to say").
			WithCommand(n.allowing(host), "Your rules do not let the "+n.layer+" "+n.name+" pay "+
				x402.Brief(host)+": please allow it if you want what it sells.")
	}
	return nil
}

// allowing is what the owner types so that the node may pay a host.
func (n node) allowing(host string) string {
	if n.layer == agentLayer {
		return x402.Command("policy", "allow", host, "--agent", n.name)
	}
	return x402.Command("policy", "allow", host, "--team", n.name)
}
