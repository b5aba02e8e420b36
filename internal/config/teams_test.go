package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
)

const twoTeams = `
[budget.teams.science]
day = "5.00"
rate = 30
labels = ["cost=42"]
[budget.teams.research]
agents = ["research-*", "anna"]
parent = "science"
per_call = "0.50"
month = "20"
allow_hosts = ["API.example", "*.news.example"]
[budget.agents."research-*"]
per_call = "0.10"
day = "1.00"
month = "10.00"
rate = 10
[agents.anna]
`

func TestTeams(t *testing.T) {
	c := rules(t, twoTeams)
	perCall, month, day := dollars(t, "0.50"), dollars(t, "20"), dollars(t, "5")
	require.Equal(t, map[string]Team{
		"science": {Day: &day, Rate: 30, AllowHosts: []string{}, Labels: []string{"cost=42"}},
		"research": {Agents: []string{"research-*", "anna"}, Parent: "science", PerCall: &perCall,
			Month: &month, AllowHosts: []string{"api.example", "*.news.example"}},
	}, c.Budget.Teams)
	each, eachDay, eachMonth := dollars(t, "0.10"), dollars(t, "1"), dollars(t, "10")
	require.Equal(t, map[string]eachAgent{"research-*": {PerCall: &each, Day: &eachDay, Month: &eachMonth,
		Rate: 10}}, c.Budget.Agents)
	require.Empty(t, c.Warnings)
	require.Equal(t, []string{"research", "science"}, Tree(c.Budget.Teams).Path("research-7"))
}

// A name that no agent has is a limit that is not there: the owner hears of it. A pattern may be for agents
// yet to come.
func TestAMemberThatNoAgentIs(t *testing.T) {
	c := rules(t, "[budget.teams.x]\nagents=['ana','an-*']\n[agents.anna]")
	require.Equal(t, []string{"the team x has the agent ana, and there is no [agents.ana]"}, c.Warnings)
}

// chain is that many teams above each other.
func chain(n int) string {
	text := "[budget.teams.t0]\n"
	for i := 1; i < n; i++ {
		text += fmt.Sprintf("[budget.teams.t%d]\nparent='t%d'\n", i, i-1)
	}
	return text
}

func TestTeamFaults(t *testing.T) {
	const x = "[budget.teams.x]\n"
	two := func(one, other string) string {
		return "[budget.teams.a]\nagents=['" + one + "']\n[budget.teams.b]\nagents=['" + other + "']"
	}
	many := func(n int, form string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, form, i)
		}
		return b.String()
	}
	for _, row := range []struct{ toml, key, says string }{
		{"[budget.teams.2x]", "budget.teams.2x", "begins with a letter"},
		{"[budget.teams.X]", "budget.teams.X", "spelt budget.teams.x"},
		{x + "day=1", "budget.teams.x.day", "as text"},
		{x + "session='1'", "budget.teams.x.session", "no such key"},
		{x + "month='-1'", "budget.teams.x.month", "not dollars"},
		{x + "rate=0", "budget.teams.x.rate", "from 1 to 100000"},
		{x + "allow_hosts=['https://a.example']", "budget.teams.x.allow_hosts", "only the host"},
		{x + "agents=['A']", "budget.teams.x.agents", "no agent's name and no pattern"},
		{x + "agents=['a?']", "budget.teams.x.agents", "no agent's name and no pattern"},
		{x + "agents=['']", "budget.teams.x.agents", "no agent's name and no pattern"},
		{x + "agents=['a','a']", "budget.teams.x.agents", "twice"},
		{x + `labels=["a\u202eb"]`, "budget.teams.x.labels", "do not show"},
		{x + "labels=[" + strings.Repeat("'l',", 17) + "]", "budget.teams.x.labels", "at most 16"},
		{x + "parent='y'", "budget.teams.x.parent", "no team"},
		{x + "parent='x'", "budget.teams.x.parent", "above itself"},
		{x + "parent='y'\n[budget.teams.y]\nparent='x'", "budget.teams.x.parent", "above itself"},
		{chain(9), "budget.teams.t8.parent", "at most 8"},
		{two("anna", "anna"), "budget.teams.b.agents", "of the team a"},
		{two("an*", "an*"), "budget.teams.b.agents", "neither is more specific"},
		{two("an*a", "an*n*"), "budget.teams.b.agents", "neither is more specific"},
		{two("*-1", "*-lab-*"), "budget.teams.b.agents", "neither is more specific"},
		{many(257, "[budget.teams.t%d]\n"), "budget.teams", "at most 256"},
		{x + "agents=[" + many(1001, "'a%d',") + "]", "budget.teams", "at most 1000"},
		{"[budget.agents.'a b']", `budget.agents."a b"`, "no agent's name and no pattern"},
		{"[budget.agents.'a*']\nrate=100001", `budget.agents."a*".rate`, "from 1 to 100000"},
		{"[budget.agents.'a*']\nsession='1'", `budget.agents."a*".session`, "no such key"},
		{many(257, "[budget.agents.'a%d-*']\n"), "budget.agents", "at most 256"},
	} {
		t.Run(row.toml[:min(len(row.toml), 60)], func(t *testing.T) {
			_, err := Parse([]byte(row.toml))
			var fault *Error
			require.ErrorAs(t, err, &fault)
			require.Equal(t, row.key, fault.Key, "%v", err)
			require.ErrorContains(t, err, row.says)
		})
	}
	for _, good := range []string{chain(8), two("anna", "an*"), two("an*", "ann*"), two("*-1", "*-2"),
		two("an*a", "an*b"), x + "agents=['an*','anna','*']"} {
		require.NoError(t, must.Err(Parse([]byte(good))), good)
	}
	require.Equal(t, 8, budget.MaxDepth)
}
