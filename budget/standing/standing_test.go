package standing

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

type row struct {
	at          time.Time
	host, agent string
	price       money.Dollars
	held        bool
}

type ledger []row

// facts are those that a query asks for, of the session and at the time that all tests have.
func (l ledger) facts(q budget.Query) budget.Facts {
	day, month := budget.DayOf(noon), budget.MonthOf(noon)
	of := func(is func(agent string) bool) budget.NodeUsage {
		return budget.NodeUsage{
			Day:   l.used(func(r row) bool { return is(r.agent) && !r.at.Before(day) }),
			Month: l.used(func(r row) bool { return is(r.agent) && !r.at.Before(month) }),
		}
	}
	all := of(func(string) bool { return true })
	facts := budget.Facts{Now: noon, Session: budget.Session{ID: "s", Started: noon, Last: noon},
		Used: budget.Usage{Day: all.Day, Month: all.Month, HostDay: map[string]budget.Use{},
			Teams: map[string]budget.NodeUsage{}, Agents: map[string]budget.NodeUsage{}}}
	for _, host := range q.HostEntries {
		facts.Used.HostDay[host] = l.used(func(r row) bool { return r.host == host && !r.at.Before(day) })
	}
	if q.Agent != "" {
		facts.Used.Agent = of(func(agent string) bool { return agent == q.Agent })
	}
	for _, team := range q.Teams {
		facts.Used.Teams[team] = of(func(agent string) bool { return q.Tree.Have(team, agent) })
	}
	for _, r := range l {
		if q.EachAgent {
			facts.Used.Agents[r.agent] = of(func(agent string) bool { return agent == r.agent })
		}
	}
	return facts
}

func (l ledger) used(which func(row) bool) (u budget.Use) {
	for _, r := range l {
		switch {
		case !which(r):
		case r.held:
			u.Held += r.price
		default:
			u.Spent += r.price
		}
	}
	return u
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func dollars(t *testing.T, text string) money.Dollars { return must.Get(money.ParseDollars(text))(t) }

func rules(t *testing.T) budget.Rules {
	session := dollars(t, "5")
	return budget.Rules{PerCall: dollars(t, "1"), Session: &session, Day: dollars(t, "10"),
		Month: dollars(t, "100"), ApproveAbove: dollars(t, "1"), Rate: 3}
}

// withTeams are the rules of agents in a tree: lab below research, whose agents have limits each, and another
// team beside them.
func withTeams(t *testing.T) budget.Rules {
	r := rules(t)
	r.Rate = 100
	amount := func(text string) *money.Dollars { return new(dollars(t, text)) }
	r.Agents = map[string]budget.Agent{"lab-1": {Day: amount("3")}, "lab-2": {}, "res-1": {}, "ops": {}}
	r.EachAgent = map[string]budget.EachAgent{
		"lab-*": {PerCall: amount("0.9"), Month: amount("4"), Rate: 2},
		"*":     {Month: amount("50"), Rate: 7},
	}
	r.Teams = budget.Teams{
		"research": {Agents: []string{"res-*"}, PerCall: amount("0.8"), Day: amount("5"),
			Month: amount("20"), Rate: 5, AllowHosts: []string{"api.example", "b.example"}},
		"lab": {Parent: "research", Agents: []string{"lab-*"}, PerCall: amount("0.7"), Day: amount("2"),
			Month: amount("8"), Rate: 4, AllowHosts: []string{"*.example", "api.example"}},
		"others": {Agents: []string{"ops"}, Day: amount("0.5")},
	}
	return r
}

func withAgents(t *testing.T) budget.Rules {
	r := rules(t)
	perCall, day, month := dollars(t, "0.5"), dollars(t, "2"), dollars(t, "20")
	r.Agents = map[string]budget.Agent{
		"research": {PerCall: &perCall, Day: &day, Month: &month, AllowHosts: []string{"api.example"}},
		"ops":      {Day: &month},
		"monthly":  {Month: &day},
		"free":     {},
	}
	return r
}

func TestTheReportOfAPath(t *testing.T) {
	r := withTeams(t)
	paid := ledger{{at: noon.Add(-time.Hour), price: dollars(t, "0.75"), agent: "lab-1"},
		{at: noon.AddDate(0, 0, -2), price: dollars(t, "1"), agent: "lab-2", held: true},
		{at: noon, price: dollars(t, "2"), agent: "res-1"}, {at: noon, price: dollars(t, "4"), agent: "ops"}}
	own := Of(r, "lab-1", paid.facts(Query(r, "lab-1")))
	require.Equal(t, dollars(t, "2.25"), *own.Agent.Day.Remaining)
	require.Equal(t, 2, own.Agent.Rate)
	require.Len(t, own.Teams, 2)
	require.Equal(t, "lab", own.Teams[0].Name)
	require.Equal(t, dollars(t, "1.25"), *own.Teams[0].Day.Remaining)
	require.Equal(t, dollars(t, "1"), own.Teams[0].Month.Held)
	require.Equal(t, "research", own.Teams[1].Name)
	require.Equal(t, dollars(t, "2.75"), own.Teams[1].Day.Spent)
	require.Empty(t, Of(r, "", paid.facts(Query(r, ""))).Teams, "it is in no team")
}

// The owner sees every team, each before those below it, with its agents: those that the rules name, and
// those that paid.
func TestTheWholeTree(t *testing.T) {
	r := withTeams(t)
	paid := ledger{{at: noon, price: dollars(t, "0.75"), agent: "lab-9"},
		{at: noon, price: dollars(t, "2"), agent: "res-1"}, {at: noon, price: dollars(t, "1"), agent: ""}}
	var shown []string
	for _, b := range Tree(r, paid.facts(TreeQuery(r))) {
		shown = append(shown, fmt.Sprint(b.Name, b.Agents, " ", b.Day.Spent.Price()))
		for _, leaf := range b.Members {
			shown = append(shown, fmt.Sprint("- ", leaf.Name, " ", leaf.Day.Spent.Price()))
		}
	}
	require.Equal(t, []string{"others[ops] $0.00", "- ops $0.00", "research[res-*] $2.75", "- res-1 $2.00",
		"lab[lab-*] $0.75", "- lab-1 $0.00", "- lab-2 $0.00", "- lab-9 $0.75"}, shown)
}

func TestAnAgentsReport(t *testing.T) {
	r := withAgents(t)
	paid := ledger{{at: noon.Add(-time.Hour), price: dollars(t, "0.75"), agent: "research"},
		{at: noon.AddDate(0, 0, -2), price: dollars(t, "1"), agent: "research", held: true},
		{at: noon, price: dollars(t, "4"), agent: "ops"}}
	own := Of(r, "research", paid.facts(Query(r, "research"))).Agent
	require.Equal(t, "research", own.Name)
	require.Equal(t, dollars(t, "0.5"), *own.PerCall)
	require.Equal(t, dollars(t, "1.25"), *own.Day.Remaining)
	require.Equal(t, dollars(t, "1"), own.Month.Held)
	require.Equal(t, "2026-12-01T00:00:00Z", own.Month.ResetsAt)
	require.Equal(t, &AgentReport{Name: "free"},
		Of(r, "free", paid.facts(Query(r, "free"))).Agent)
	require.Nil(t, Of(r, "", paid.facts(Query(r, ""))).Agent)
}

func TestReportHosts(t *testing.T) {
	r := rules(t)
	r.HostDay = map[string]money.Dollars{"b.example": 300, "a.example": 500}
	rows := ledger{
		{at: noon, host: "b.example", price: 100}, {at: noon, host: "b.example", price: 50, held: true},
		{at: noon.AddDate(0, 0, -1), host: "a.example", price: 7},
	}
	list := Hosts(r, rows.facts(Query(r, "")))
	limit := func(d money.Dollars) *money.Dollars { return &d }
	require.Equal(t, []HostLine{
		{"a.example", Line{Limit: limit(500), Remaining: limit(500), ResetsAt: "2026-11-22T00:00:00Z"}},
		{"b.example", Line{Limit: limit(300), Spent: 100, Held: 50, Remaining: limit(150),
			ResetsAt: "2026-11-22T00:00:00Z"}},
	}, list)
}

// What is shown of each window is what a decision about a payment goes by: its limit, and what it held.
func TestWhatIsShownIsWhatIsDecidedBy(t *testing.T) {
	r := withTeams(t)
	r.HostDay = map[string]money.Dollars{"api.example": dollars(t, "9")}
	paid := ledger{{at: noon.Add(-time.Hour), price: dollars(t, "0.5"), agent: "lab-1", host: "api.example"},
		{at: noon.AddDate(0, 0, -2), price: dollars(t, "1"), agent: "lab-1", held: true}}
	for _, sessionCap := range []*money.Dollars{r.Session, new(dollars(t, "4"))} {
		ask := budget.Ask{Agent: "lab-1", Host: "api.example", Price: dollars(t, "0.1"), Approved: true}
		facts := paid.facts(r.Query(ask))
		if sessionCap != r.Session {
			r.Session, facts.Session.Cap = nil, sessionCap
		}
		shown := Of(r, "lab-1", facts)
		lines := []Line{shown.Session, shown.Day, shown.Month, Hosts(r, facts)[0].Line, *shown.Agent.Day,
			*shown.Agent.Month}
		for _, team := range shown.Teams {
			lines = append(lines, team.Day, team.Month)
		}
		caps := must.Get(r.Decide(ask, facts))(t).Caps
		require.Len(t, lines, len(caps))
		for i, c := range caps {
			require.Equal(t, c.Limit, *lines[i].Limit, c.Title())
			require.Equal(t, c.Used, lines[i].Spent.Add(lines[i].Held), c.Title())
		}
	}
}

func TestEachTeamIsBeforeThoseBelowIt(t *testing.T) {
	tree := budget.Teams{"lab": {Parent: "research"}, "research": {Parent: "science"}, "science": {}}
	require.Equal(t, []string{"science", "research", "lab"}, inOrder(tree))
}
