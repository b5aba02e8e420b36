package standing

import (
	"maps"
	"slices"

	"x402-wallet/budget"
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

// agentReport shows an agent's windows as they stand; nil for a caller without a name.
func agentReport(r budget.Rules, name string, facts budget.Facts) *AgentReport {
	if name == "" {
		return nil
	}
	own := r.Nodes(name)[0]
	shown := &AgentReport{Name: name, PerCall: own.PerCall, Rate: own.Rate}
	day, month := linesOf(own.Day, own.Month, facts.Used.Agent, facts)
	if own.Day != nil {
		shown.Day = &day
	}
	if own.Month != nil {
		shown.Month = &month
	}
	return shown
}

// teamReports shows the teams of an agent's path, its own first.
func teamReports(r budget.Rules, agent string, facts budget.Facts) (list []TeamReport) {
	for _, name := range r.Teams.Path(agent) {
		list = append(list, teamReport(r, name, facts))
	}
	return list
}

func teamReport(r budget.Rules, name string, facts budget.Facts) TeamReport {
	t := r.Teams[name]
	day, month := linesOf(t.Day, t.Month, facts.Used.Teams[name], facts)
	return TeamReport{Name: name, Parent: t.Parent, PerCall: t.PerCall, Day: day, Month: month, Rate: t.Rate}
}

// linesOf are the day and month of an agent or a team, also where it has no limit.
func linesOf(ofDay, ofMonth *money.Dollars, used budget.NodeUsage, facts budget.Facts) (day, month Line) {
	return lineOf(ofDay, used.Day, dayEnds(facts)), lineOf(ofMonth, used.Month, monthEnds(facts))
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

// TreeQuery says which facts Tree needs; they do for a caller without a name in Of and Hosts, too.
func TreeQuery(r budget.Rules) budget.Query {
	q := Query(r, "")
	q.Teams, q.EachAgent = inOrder(r.Teams), len(r.Teams) > 0
	return q
}

// Tree shows all teams as they stand, each before those below it, with the agents that are directly in it:
// those that the rules name, and those that used something.
func Tree(r budget.Rules, facts budget.Facts) (list []Branch) {
	members := membersOf(r, facts)
	for _, name := range inOrder(r.Teams) {
		branch := Branch{TeamReport: teamReport(r, name, facts), Agents: r.Teams[name].Agents,
			Members: []TreeLeaf{}}
		for _, agent := range members[name] {
			own := r.Nodes(agent)[0]
			day, month := linesOf(own.Day, own.Month, facts.Used.Agents[agent], facts)
			branch.Members = append(branch.Members, TreeLeaf{Name: agent, PerCall: own.PerCall, Day: day,
				Month: month, Rate: own.Rate})
		}
		list = append(list, branch)
	}
	return list
}

// membersOf are the agents of each team, in their order.
func membersOf(r budget.Rules, facts budget.Facts) map[string][]string {
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

// inOrder are all teams, each before those below it, and by name.
func inOrder(teams budget.Teams) (names []string) {
	for name := range teams {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return slices.Compare(downTo(teams, a), downTo(teams, b))
	})
	return names
}

// downTo is a team's path from the top.
func downTo(teams budget.Teams, team string) []string {
	path := teams.Up(team)
	slices.Reverse(path)
	return path
}
