package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/sandbox"
)

// The owner writes teams into config.toml; their budgets are shown as a tree, lowered without the passphrase
// and raised with it, and so are the limits of each agent whose name matches a pattern.
func TestTeams(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	w.setConfig(t, w.configText(t)+`
[budget.teams.science]
month = "30.00"
[budget.teams.research]
agents = ["research-*", "anna"]
parent = "science"
allow_hosts = ["api.example"]
[agents.research-1]
`)
	runs(t, 4, env, "budget", "set", "day", "5.00", "--team", "research") // an agent more takes a person
	c := sit(t, nil, env, "budget", "set", "day", "5.00", "--team", "research")
	c.sees("Passphrase, to seal these rules: ", 1)
	require.Contains(t, c.text(), "tightens budget.teams: none → [research agents "+
		"[research-*, anna] parent science")
	require.Contains(t, c.text(), "the team research has the agent anna, and there is no [agents.anna]")
	c.types(testPassphrase + "\n")
	c.ends(0)

	runs(t, 0, env, "budget", "set", "rate", "9", "--team", "science")
	runs(t, 0, env, "budget", "set", "day", "1.00", "--agents", "research-*")
	runs(t, 4, env, "budget", "set", "day", "2.00", "--agents", "research-*")
	runs(t, 4, env, "budget", "set", "day", "6.00", "--team", "research")
	runs(t, 4, env, "policy", "allow", "b.example", "--team", "research")
	for _, wrong := range [][]string{{"budget", "set", "session", "1", "--team", "research"},
		{"budget", "set", "day", "1", "--team", "nobody"}, {"budget", "set", "day", "1", "--agents", "R*"},
		{"budget", "set", "approve_above", "1", "--agents", "research-*"},
		{"budget", "set", "day", "1", "--team", "research", "--agent", "research-1"},
		{"policy", "allow", "b.example", "--team", "nobody"}} {
		runs(t, 2, env, wrong...)
	}
	withPassphrase(t, 0, env, "policy", "allow", "b.example", "--team", "research")
	rules, err := config.Parse([]byte(w.configText(t)))
	require.NoError(t, err)
	research := rules.Budget.Teams["research"]
	require.Equal(t, "$5.00", research.Day.Price())
	require.Equal(t, []string{"api.example", "b.example"}, research.AllowHosts)
	require.Equal(t, 9, rules.Budget.Teams["science"].Rate)

	listed, _ := runs(t, 0, env, "budget")
	var out struct {
		Tree []struct {
			Name, Parent string
			Month        struct{ Remaining *string }
			Members      []struct {
				Name string
				Day  struct{ Limit, Spent string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(listed), &out))
	require.Len(t, out.Tree, 2)
	require.Equal(t, "science", out.Tree[0].Name)
	require.Equal(t, "30.00", *out.Tree[0].Month.Remaining)
	require.Equal(t, "science", out.Tree[1].Parent)
	require.Equal(t, "research-1", out.Tree[1].Members[0].Name)
	require.Equal(t, "1.00", out.Tree[1].Members[0].Day.Limit)

	seen := sit(t, nil, env, "budget").ends(0)
	require.Regexp(t, `science: +– +\$0\.00 +\$0\.00 of \$30\.00 +9/min`, seen)
	require.Regexp(t, `  research: research-\*, anna +– +\$0\.00 of \$5\.00 +\$0\.00 +–`, seen)
	require.Regexp(t, `    research-1 +– +\$0\.00 of \$1\.00`, seen)
	require.Regexp(t, `research-1 .* research\b`, sit(t, nil, env, "agents").ends(0))
}
