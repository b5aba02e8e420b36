package budget

import (
	"maps"
	"slices"

	"x402-wallet/x402/money"
)

// AgentReport is what is left to one agent of its own limits; those that it has none of are missing.
type AgentReport struct {
	Name    string         `json:"name"`
	PerCall *money.Dollars `json:"perCall,omitempty"`
	Day     *Line          `json:"day,omitempty"`
	Month   *Line          `json:"month,omitempty"`
	Rate    int            `json:"rate,omitempty"`
}

// TeamReport is a team, and what all agents in it and in those below it used.
type TeamReport struct {
	Name    string         `json:"name"`
	Parent  string         `json:"parent,omitempty"`
	PerCall *money.Dollars `json:"perCall,omitempty"`
	Day     Line           `json:"day"`
	Month   Line           `json:"month"`
	Rate    int            `json:"rate,omitempty"`
}

// reportAgent shows an agent's windows as they stand; nil for a caller without a name.
func (r Rules) reportAgent(name string, facts Facts) *AgentReport {
	if name == "" {
		return nil
	}
	n := r.ownNode(name)
	shown := &AgentReport{Name: name, PerCall: n.perCall.most, Rate: n.rate}
	windows := n.windows(facts.Used, facts.Now.UTC())
	for i, line := range []**Line{&shown.Day, &shown.Month} {
		if windows[i].limit != nil {
			*line = new(windows[i].line())
		}
	}
	return shown
}

// reportTeams shows the teams of an agent's path, its own first.
func (r Rules) reportTeams(agent string, facts Facts) (list []TeamReport) {
	for _, name := range r.Teams.Path(agent) {
		list = append(list, r.reportTeam(name, facts))
	}
	return list
}

func (r Rules) reportTeam(name string, facts Facts) TeamReport {
	n := r.teamNode(name)
	day, month := n.lines(facts)
	return TeamReport{Name: name, Parent: r.Teams[name].Parent, PerCall: n.perCall.most, Day: day,
		Month: month, Rate: n.rate}
}

// lines are the node's day and month, also where it has no limit.
func (n node) lines(facts Facts) (day, month Line) {
	windows := n.windows(facts.Used, facts.Now.UTC())
	return windows[0].line(), windows[1].line()
}

// Branch is a team of the whole tree, as the owner sees it.
type Branch struct {
	TeamReport
	Agents  []string   `json:"agents"` // names and patterns of those that are in it
	Members []TreeLeaf `json:"members"`
}

// TreeLeaf is an agent of the tree.
type TreeLeaf struct {
	Name    string         `json:"name"`
	PerCall *money.Dollars `json:"perCall,omitempty"`
	Day     Line           `json:"day"`
	Month   Line           `json:"month"`
	Rate    int            `json:"rate,omitempty"`
}

// TreeQuery says which facts Tree needs; they do for Report("") and ReportHosts, too.
func (r Rules) TreeQuery() Query {
	q := r.ReportQuery("")
	q.Teams, q.EachAgent = r.Teams.inOrder(), len(r.Teams) > 0
	return q
}

// Tree shows all teams as they stand, each before those below it, with the agents that are directly in it:
// those that the rules name, and those that used something.
func (r Rules) Tree(facts Facts) (list []Branch) {
	members := r.members(facts)
	for _, name := range r.Teams.inOrder() {
		branch := Branch{TeamReport: r.reportTeam(name, facts), Agents: r.Teams[name].Agents,
			Members: []TreeLeaf{}}
		for _, agent := range members[name] {
			of := facts
			of.Used.Agent = facts.Used.Agents[agent]
			n := r.ownNode(agent)
			day, month := n.lines(of)
			branch.Members = append(branch.Members, TreeLeaf{Name: agent, PerCall: n.perCall.most, Day: day,
				Month: month, Rate: n.rate})
		}
		list = append(list, branch)
	}
	return list
}

// members are the agents of each team, in their order.
func (r Rules) members(facts Facts) map[string][]string {
	agents := slices.Collect(maps.Keys(r.Agents))
	for agent := range facts.Used.Agents {
		agents = append(agents, agent)
	}
	slices.Sort(agents)
	members := map[string][]string{}
	for _, agent := range slices.Compact(agents) {
		team := r.Teams.Of(agent)
		members[team] = append(members[team], agent)
	}
	return members
}
