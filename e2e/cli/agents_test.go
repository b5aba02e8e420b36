package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// An agent is added at a terminal, where its token is printed once and its hash is kept; what it may do is
// raised with the passphrase and lowered without, and it is taken away again.
func TestAgents(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	rules := func() *config.Config {
		return must.Get(config.Parse([]byte(w.configText(t))))(t)
	}
	add := []string{"agents", "add", "research", "--budget", "day=0.50", "--budget", "per_call=$0.10",
		"--label", "team=research", "--allow-host", "api.example", "--user", "research"}

	before := rules().Raw
	_, said := runs(t, 4, env, add...) // an agent with a shell, which has no passphrase to type
	require.NotContains(t, said, "x402w_")
	require.Equal(t, string(before), string(rules().Raw))

	stdout := must.Get(os.Create(filepath.Join(t.TempDir(), "stdout")))(t)
	defer stdout.Close()
	c := sit(t, stdout, env, append(add, "--json=false")...)
	c.sees("Passphrase, to seal these rules: ", 1)
	require.Contains(t, c.text(), "agents: none → [research token sha256:")
	c.types(testPassphrase + "\n")
	require.Contains(t, c.ends(0), "the token of research, which is not shown again")
	printed := must.Get(os.ReadFile(stdout.Name()))(t)
	token := strings.TrimSuffix(string(printed), "\n")
	require.Regexp(t, "^x402w_[A-Za-z0-9_-]{43}$", token, "nothing else on stdout")

	now := rules()
	require.NotContains(t, string(now.Raw), token)
	require.Equal(t, callers.TokenHash(token), now.Agents["research"].Token)
	name, ok := callers.ByToken(now, token)
	require.True(t, ok)
	require.Equal(t, "research", name)
	require.Equal(t, "team=research", now.Agents["research"].Label)
	require.Equal(t, []string{"api.example"}, now.Agents["research"].AllowHosts)

	seen := sit(t, nil, env, "agents").ends(0)
	require.Contains(t, seen, "$0.50 of $0.50")
	require.Contains(t, seen, "token, user research")
	listed, _ := runs(t, 0, env, "agents", "list")
	out := must.JSON[struct {
		Agents []struct {
			Name, PerCall, Label string
			Token                bool
		}
	}]([]byte(listed))(t)
	require.Equal(t, "research 0.10 team=research true", strings.Join([]string{out.Agents[0].Name,
		out.Agents[0].PerCall, out.Agents[0].Label, map[bool]string{true: "true"}[out.Agents[0].Token]}, " "))
	require.NotContains(t, listed, "sha256")

	said, _ = runs(t, 2, env, add...)
	require.Contains(t, said, "there is an agent research already")
	for _, wrong := range [][]string{{"agents", "add", "Research"}, {"agents", "revoke", "nobody"},
		{"agents", "add", "x", "--budget", "session=1"}, {"agents", "add", "x", "--budget", "day=much"},
		{"agents", "add", "x", "--user", "research"}, {"budget", "set", "rate", "1", "--agent", "research"},
		{"budget", "set", "day", "1", "--agent", "nobody"},
		{"policy", "allow", "b.example", "--agent", "nobody"}} {
		runs(t, 2, env, wrong...)
	}
	require.Equal(t, string(now.Raw), string(rules().Raw))

	runs(t, 4, env, "budget", "set", "day", "0.60", "--agent", "research")
	runs(t, 4, env, "policy", "allow", "b.example", "--agent", "research")
	runs(t, 0, env, "budget", "set", "day", "0.40", "--agent", "research") // what tightens needs nobody
	require.Equal(t, "$0.40", rules().Agents["research"].Day.Price())
	withPassphrase(t, 0, env, "policy", "allow", "b.example", "--agent", "research")
	require.Equal(t, []string{"api.example", "b.example"}, rules().Agents["research"].AllowHosts)

	runs(t, 0, env, "agents", "revoke", "research")
	require.Empty(t, rules().Agents)
	require.Equal(t, string(before), string(rules().Raw), "nothing of it is left")
	seen = sit(t, nil, env, "agents", "list").ends(0)
	require.Contains(t, seen, "no agent has a name")
}

// With --json the token is a member of the answer.
func TestAnAgentsTokenForAProgram(t *testing.T) {
	t.Parallel()
	_, env := household(t, sandbox.Options{}, sandbox.Rules{})
	stdout := must.Get(os.Create(filepath.Join(t.TempDir(), "stdout")))(t)
	defer stdout.Close()
	c := sit(t, stdout, env, "agents", "add", "ops-2", "--json")
	c.sees("Passphrase, to seal these rules: ", 1)
	c.types(testPassphrase + "\n")
	c.ends(0)
	printed := must.Get(os.ReadFile(stdout.Name()))(t)
	out := must.JSON[map[string]string](printed)(t)
	require.Equal(t, "ops-2", out["agent"])
	require.Regexp(t, "^x402w_[A-Za-z0-9_-]{43}$", out["token"])
	require.Len(t, out, 2)
}

// An agent that an authorization server gives its tokens has none of the wallet's.
func TestAnAgentBySubject(t *testing.T) {
	t.Parallel()
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{}) + "\n[service]\nurl = \"https://wallet.example\"\n" +
			"issuer = \"https://login.example\"\n"
	})
	c := sit(t, nil, env, "agents", "add", "research", "--subject", "0oa1b2c3", "--budget", "day=0.50")
	c.sees("Passphrase, to seal these rules: ", 1)
	require.Contains(t, c.text(), "agents: none → [research subject 0oa1b2c3 day $0.50")
	c.types(testPassphrase + "\n")
	seen := c.ends(0)
	require.Contains(t, seen, "research is let in by tokens of the authorization server for 0oa1b2c3")
	require.NotContains(t, seen, "x402w_")
	rules := must.Get(config.Parse([]byte(w.configText(t))))(t)
	require.Empty(t, rules.Agents["research"].Token)
	require.Equal(t, "0oa1b2c3", rules.Agents["research"].Subject)
	require.Contains(t, sit(t, nil, env, "agents").ends(0), "subject 0oa1b2c3")
	said, _ := runs(t, 2, env, "agents", "add", "other", "--subject", "0oa1b2c3")
	require.Contains(t, said, "that of the agent")
	_, env = household(t, sandbox.Options{}, sandbox.Rules{})
	said, _ = runs(t, 2, env, "agents", "add", "other", "--subject", "0oa1b2c3")
	require.Contains(t, said, "it needs issuer")
}

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
	rules := must.Get(config.Parse([]byte(w.configText(t))))(t)
	research := rules.Budget.Teams["research"]
	require.Equal(t, "$5.00", research.Day.Price())
	require.Equal(t, []string{"api.example", "b.example"}, research.AllowHosts)
	require.Equal(t, 9, rules.Budget.Teams["science"].Rate)

	listed, _ := runs(t, 0, env, "budget")
	out := must.JSON[struct {
		Tree []struct {
			Name, Parent string
			Month        struct{ Remaining *string }
			Members      []struct {
				Name string
				Day  struct{ Limit, Spent string }
			}
		}
	}]([]byte(listed))(t)
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
