package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// withTeams are the rules of agents in a tree: lab below research, whose agents have limits each, and another
// team beside them.
func withTeams(t *testing.T) Rules {
	r := rules(t)
	r.Rate = 100
	amount := func(text string) *money.Dollars { return new(dollars(t, text)) }
	r.Agents = map[string]Agent{"lab-1": {Day: amount("3")}, "lab-2": {}, "res-1": {}, "ops": {}}
	r.EachAgent = map[string]EachAgent{
		"lab-*": {PerCall: amount("0.9"), Month: amount("4"), Rate: 2},
		"*":     {Month: amount("50"), Rate: 7},
	}
	r.Teams = Teams{
		"research": {Agents: []string{"res-*"}, PerCall: amount("0.8"), Day: amount("5"),
			Month: amount("20"), Rate: 5, AllowHosts: []string{"api.example", "b.example"}},
		"lab": {Parent: "research", Agents: []string{"lab-*"}, PerCall: amount("0.7"), Day: amount("2"),
			Month: amount("8"), Rate: 4, AllowHosts: []string{"*.example", "api.example"}},
		"others": {Agents: []string{"ops"}, Day: amount("0.5")},
	}
	return r
}

// Every level's limit passes at the limit and refuses one micro-dollar above it, with its numbers, its node
// and what raises it. What others spent counts exactly where they are on the path.
func TestEveryLevelOfThePathHolds(t *testing.T) {
	today, before := noon.Add(-time.Hour), noon.AddDate(0, 0, -2)
	by := func(agent, price string, at time.Time) row {
		return row{at: at, session: "old", host: "api.example", price: dollars(t, price), agent: agent}
	}
	for _, c := range []struct {
		name, agent, layer, of, window string
		ledger                         fake
		at, over, command              string
	}{
		{"a team's call", "lab-2", "team", "lab", "per_call", nil, "0.7", "0.700001",
			"budget set per_call 0.71 --team lab"},
		{"the call of a team above", "res-1", "team", "research", "per_call", nil, "0.8", "0.800001",
			"budget set per_call 0.81 --team research"},
		{"a team's day", "lab-2", "team", "lab", "day", fake{by("lab-1", "1.6", today)}, "0.4", "0.400001",
			"budget set day 2.01 --team lab"},
		{"a team's month", "lab-2", "team", "lab", "month", fake{by("lab-1", "3", before),
			by("lab-3", "4.6", before)}, "0.4", "0.400001", "budget set month 8.01 --team lab"},
		{"the day of a team above", "lab-2", "team", "research", "day", fake{by("res-1", "4.6", today)},
			"0.4", "0.400001", "budget set day 5.01 --team research"},
		{"the month of a team above", "res-1", "team", "research", "month", fake{by("lab-1", "9.6", before),
			by("res-2", "10", before)}, "0.4", "0.400001", "budget set month 20.01 --team research"},
		{"held counts", "lab-2", "team", "lab", "day", fake{{at: today, price: dollars(t, "1.6"),
			agent: "lab-1", held: true}}, "0.4", "0.400001", "budget set day 2.01 --team lab"},
		{"each agent's month", "lab-2", "agent", "lab-2", "month", fake{by("lab-2", "3.6", before),
			by("lab-1", "3.9", before)}, "0.4", "0.400001", "budget set month 4.01 --agents 'lab-*'"},
		{"what is in no team of the path is others'", "lab-2", "team", "lab", "day",
			fake{by("lab-1", "1.6", today), by("res-1", "3", today), by("ops", "1", today),
				by("", "1", today)}, "0.4", "0.400001", "budget set day 2.01 --team lab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := withTeams(t)
			require.NoError(t, check(r, askOf(t, c.agent, c.at), c.ledger))
			e := x402.AsError(check(r, askOf(t, c.agent, c.over), c.ledger))
			require.Equal(t, x402.BudgetExceeded, e.Code, "%v", e)
			require.Equal(t, []any{c.layer, c.of, c.window}, []any{e.Details["layer"], e.Details[c.layer],
				e.Details["window"]})
			require.Equal(t, "x402-wallet "+c.command, e.NextStep().Command)
			require.Contains(t, e.Message, "the "+c.layer+" "+c.of)
			require.NoError(t, check(r, askOf(t, "", c.over), c.ledger), "who has no name has no such limit")
		})
	}
}

// The lowest of an agent's own limits holds, by whichever entry it has it.
func TestAnAgentsOwnEntryAndItsPatterns(t *testing.T) {
	r := withTeams(t)
	own := r.Nodes("lab-1")[0]
	require.Equal(t, Node{ID: "agent:lab-1", PerCall: new(dollars(t, "0.9")), Day: new(dollars(t, "3")),
		Month: new(dollars(t, "4")), Rate: 2}, own)
	r.EachAgent["lab-1"] = EachAgent{Day: new(dollars(t, "1")), Rate: 50}
	require.Equal(t, dollars(t, "1"), *r.Nodes("lab-1")[0].Day)
	require.Equal(t, 2, r.Nodes("lab-1")[0].Rate)
	require.Nil(t, r.Nodes("lab-2")[0].Day)
}

// A node's rate lets that many pass, and the next when the oldest of them is a minute ago.
func TestTheRateOfEveryLevel(t *testing.T) {
	for _, c := range []struct {
		name, agent, layer, of string
		max                    int
		others                 []string // who paid, besides
	}{
		{"each agent's", "lab-1", "agent", "lab-1", 2, []string{"lab-1"}},
		{"a team's", "lab-1", "team", "lab", 4, []string{"lab-2", "lab-3", "lab-4"}},
		{"of a team above", "lab-1", "team", "research", 5, []string{"res-1", "res-2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := withTeams(t)
			var ledger fake
			for i := range c.max - 1 {
				ledger = append(ledger, row{at: noon.Add(-time.Duration(10+i) * time.Second),
					agent: c.others[i%len(c.others)]})
			}
			require.NoError(t, check(r, askOf(t, c.agent, "0.1"), ledger))
			ledger = append(ledger, row{at: noon.Add(-50 * time.Second), agent: c.others[0]})
			e := x402.AsError(check(r, askOf(t, c.agent, "0.1"), ledger))
			require.Equal(t, x402.RateLimited, e.Code, "%v", e)
			require.Equal(t, []any{c.layer, c.of, c.max}, []any{e.Details["layer"], e.Details[c.layer],
				e.Details["limit"]})
			require.Equal(t, "2026-11-21T12:00:10Z", e.NextStep().At)
			require.Contains(t, e.NextStep().Why, "the "+c.layer+" "+c.of)
			require.NoError(t, check(r, askOf(t, "ops", "0.1"), ledger), "it is not ops'")
		})
	}
}

func TestTheHostsOfEveryLevel(t *testing.T) {
	r := withTeams(t)
	require.NoError(t, r.CheckHost("lab-1", "b.example"))
	require.NoError(t, r.CheckHost("ops", "c.example"))
	for host, team := range map[string]string{"c.example": "research", "b.test": "lab"} {
		e := x402.AsError(r.CheckHost("lab-1", host))
		require.Equal(t, x402.PolicyDenied, e.Code)
		require.Equal(t, team, e.Details["team"])
		require.Equal(t, "x402-wallet policy allow "+host+" --team "+team, e.NextStep().Command)
	}
}

// The ledger is told of every level, from the agent up to the owner.
func TestTheNodesOfAPath(t *testing.T) {
	r := withTeams(t)
	ids := func(agent string) (list []string) {
		for _, n := range r.Nodes(agent) {
			list = append(list, n.ID)
		}
		return list
	}
	require.Equal(t, []string{"agent:lab-1", "team:lab", "team:research", "org"}, ids("lab-1"))
	require.Equal(t, []string{"agent:free", "org"}, ids("free"))
	require.Equal(t, []string{"org"}, ids(""))
	lab, org := r.Nodes("lab-1")[1], r.Nodes("")[0]
	require.Equal(t, Node{ID: "team:lab", PerCall: new(dollars(t, "0.7")), Day: new(dollars(t, "2")),
		Month: new(dollars(t, "8")), Rate: 4}, lab)
	require.Equal(t, Node{ID: "org", PerCall: &r.PerCall, Session: r.Session, Day: &r.Day, Month: &r.Month,
		Rate: 100}, org)
}

// The caps and rates that the ledger enforces are those of every level; of what is prepaid the rates alone.
func TestTheCapsOfAPath(t *testing.T) {
	r := withTeams(t)
	a := askOf(t, "lab-1", "0.1")
	d := must.Get(r.Decide(a, fake(nil).facts(r.Query(a), noon, current)))(t)
	caps, rates := map[string]money.Dollars{}, map[string]int{}
	for _, c := range d.Caps {
		if !c.Window.IsAll() {
			caps[c.Window.Node()+c.Window.Since.Format(" 01-02")] = c.Limit
		}
	}
	for _, l := range d.Rates {
		rates[l.Window.Node()] = l.Max
	}
	require.Equal(t, map[string]money.Dollars{
		"agent:lab-1 11-21": dollars(t, "3"), "agent:lab-1 11-01": dollars(t, "4"),
		"team:lab 11-21": dollars(t, "2"), "team:lab 11-01": dollars(t, "8"),
		"team:research 11-21": dollars(t, "5"), "team:research 11-01": dollars(t, "20"),
	}, caps)
	require.Equal(t, map[string]int{"org": 100, "agent:lab-1": 2, "team:lab": 4, "team:research": 5}, rates)
	a.Prepaid = true
	d = must.Get(r.Decide(a, fake(nil).facts(r.Query(a), noon, current)))(t)
	require.Empty(t, d.Caps)
	require.Len(t, d.Rates, 4)
}

// Whatever the tree: what a payment may cost at most is what Decide lets pass, a micro-dollar more is not,
// and at the limit no node of the path is over by one.
func TestTheMaxPriceOfAPathIsTheEdgeOfDecide(t *testing.T) {
	agents := []string{"", "a-1", "a-2", "b-1"}
	passed, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		r := rules(t)
		r.Rate, r.Agents = 100, map[string]Agent{"a-1": {}, "a-2": {}, "b-1": {}}
		amount := func() *money.Dollars {
			if rapid.Bool().Draw(rt, "none") {
				return nil
			}
			return new(money.Dollars(rapid.Int64Range(0, 3_000_000).Draw(rt, "limit")))
		}
		r.EachAgent = map[string]EachAgent{"a-*": {PerCall: amount(), Day: amount(), Month: amount()}}
		r.Teams = Teams{}
		parent := ""
		for i, patterns := range [][]string{{"b-*"}, {"a-*"}, {"a-1"}} {
			name := fmt.Sprint("team", i)
			r.Teams[name] = Team{Parent: parent, Agents: patterns, PerCall: amount(), Day: amount(),
				Month: amount()}
			if rapid.Bool().Draw(rt, "below") {
				parent = name
			}
		}
		var ledger fake
		for range rapid.IntRange(0, 4).Draw(rt, "payments") {
			ledger = append(ledger, row{at: noon.AddDate(0, 0, -rapid.IntRange(0, 3).Draw(rt, "days ago")).
				Add(-time.Hour), price: money.Dollars(rapid.Int64Range(0, 1_000_000).Draw(rt, "price")),
				agent: rapid.SampledFrom(agents).Draw(rt, "agent")})
		}
		a := askOf(t, rapid.SampledFrom(agents).Draw(rt, "who"), "0")
		facts := ledger.facts(r.Query(a), noon, current)
		most, err := r.MaxPrice(a, r.PerCall, facts)
		if err != nil {
			refused++
			return
		}
		passed++
		a.Price, a.Approved = most, true
		must.Get(r.Decide(a, facts))(rt)
		over := func(limit *money.Dollars, is func(row) bool) {
			require.True(rt, limit == nil || ledger.used(is).Total()+most <= *limit)
		}
		for name, team := range r.Teams {
			if !r.Teams.Have(name, a.Agent) {
				continue
			}
			mine := func(r2 row) bool { return r.Teams.Have(name, r2.agent) }
			over(team.PerCall, func(row) bool { return false })
			over(team.Day, func(r row) bool { return mine(r) && !r.at.Before(DayOf(noon)) })
			over(team.Month, func(r row) bool { return mine(r) && !r.at.Before(MonthOf(noon)) })
		}
		a.Price++
		require.Error(rt, must.Err(r.Decide(a, facts)))
	})
	require.NotZero(t, passed)
	require.NotZero(t, refused)
}

// names are all of up to some letters, of an alphabet of two.
func names(letters int) (list []string) {
	list = []string{""}
	for from := 0; letters > 0; letters-- {
		end := len(list)
		for _, shorter := range list[from:end] {
			list = append(list, shorter+"a", shorter+"b")
		}
		from = end
	}
	return list
}

func means(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	if pattern[0] == '*' {
		return means(pattern[1:], name) || (name != "" && means(pattern, name[1:]))
	}
	return name != "" && pattern[0] == name[0] && means(pattern[1:], name[1:])
}

func TestPatternsMatchWhatTheyMean(t *testing.T) {
	all := names(6)
	rapid.Check(t, func(rt *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{0,5}`).Draw(rt, "pattern")
		for _, name := range all {
			require.Equal(rt, means(pattern, name), Matches(pattern, name), "%q", name)
		}
	})
	require.False(t, Matches("a*a", "a"), "one letter is not two")
	require.False(t, Matches("a.*", "abc"), "there is nothing but *")
	require.False(t, Matches("a?", "ab"))
}

// science has research, with two labs; sales stands beside it.
func someTeams() Teams {
	return Teams{
		"science":  {Agents: []string{"dean"}},
		"research": {Parent: "science", Agents: []string{"research-*"}},
		"lab":      {Parent: "research", Agents: []string{"research-lab-*", "anna"}},
		"sales":    {Agents: []string{"*", "research-lab-7"}},
	}
}

func TestTheTeamOfAnAgent(t *testing.T) {
	tree := someTeams()
	for agent, path := range map[string]string{
		"dean":           "science", // a name beats "*"
		"research-1":     "research science",
		"research-lab-1": "lab research science", // the longer text beats the shorter one
		"research-lab-7": "sales",                // a name beats any pattern
		"anna":           "lab research science",
		"bob":            "sales",
		"":               "",
	} {
		require.Equal(t, path, strings.Join(tree.Path(agent), " "), "%q", agent)
		for team := range tree {
			in := strings.Contains(" "+path+" ", " "+team+" ")
			require.Equal(t, in, tree.Have(team, agent), "%s in %s", agent, team)
		}
	}
	delete(tree, "sales")
	require.Empty(t, tree.Path("bob"))
}

// A path ends, whatever the rules say: they are refused where they are read.
func TestAPathEnds(t *testing.T) {
	require.Len(t, Teams{"a": {Parent: "b"}, "b": {Parent: "a"}}.Up("a"), MaxDepth)
	require.Equal(t, []string{"a"}, Teams{"a": {Parent: "gone"}}.Up("a"))
}

// Which account pays is said by the nearest team that has one, and another one pays nothing for its agents.
func TestAnAgentPaysFromItsAccount(t *testing.T) {
	teams := Teams{"research": {Agents: []string{"research"}, Account: true},
		"bots": {Agents: []string{"bot-*"}, Parent: "research"},
		"far":  {Agents: []string{"bot-9"}, Parent: "bots", Account: true},
		"desk": {Agents: []string{"anna"}}}
	agents := map[string]Agent{"research": {}, "bot-1": {}, "bot-9": {}, "anna": {}, "ops": {}}
	for agent, account := range map[string]string{"research": "research", "bot-1": "research", "bot-9": "far",
		"anna": "", "ops": "", "": ""} {
		require.Equal(t, account, teams.Account(agent), agent)
		for _, of := range []string{"", "research", "far"} {
			err := Rules{Teams: teams, Agents: agents, Account: of}.CheckAgent(agent)
			if of == account {
				require.NoError(t, err, agent)
				continue
			}
			require.True(t, x402.HasCode(err, x402.PolicyDenied), "%s by %s: %v", agent, of, err)
		}
	}
}
