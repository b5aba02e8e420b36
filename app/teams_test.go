package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The rules of a wallet are those that its owner wrote: teams, limits for each agent of a pattern, and what
// the books call agents that have no label of their own.
func TestTheOwnersTeams(t *testing.T) {
	c, err := config.Parse([]byte(`
[agents.anna]
[agents.bob]
label = "own"
[agents.cy]
[budget.teams.research]
agents = ["anna", "b*"]
parent = "science"
per_call = "0.50"
[budget.teams.science]
labels = ["cost=42", "unit=eu"]
[budget.agents."a*"]
per_call = "0.20"
`))
	require.NoError(t, err)
	rules := budgetRules(c)
	for agent, most := range map[string]money.Dollars{"anna": 200_000, "bob": 500_000, "cy": 1_000_000} {
		require.NoError(t, rules.CheckCall(agent, most), agent)
		require.True(t, x402.HasCode(rules.CheckCall(agent, most+1), x402.BudgetExceeded), agent)
	}
	require.Error(t, rules.CheckAgent("amy"), "a pattern makes nobody an agent")
	require.Equal(t, map[string]string{"anna": "cost=42 unit=eu", "bob": "own", "cy": ""}, agentLabels(c))
}

// A machine's own rules may be tighter than the fleet's where the ledger adds up what they limit.
func TestALimitThatTheFleetDoesNotKeep(t *testing.T) {
	parse := func(text string) *config.Config {
		rules, err := config.Parse([]byte(text))
		require.NoError(t, err)
		return rules
	}
	const fleet = "[ledger]\nurl = 'postgres://owner@localhost/x402'\nreplication = 'none'\nkeys = 'shared'\n"
	const team = "[budget.teams.research]\nagents = ['research-*']\n"
	owners := parse("[budget]\nday = '5'\nhosts.'a.example'.day = '2'\n" + fleet + team + "day = '3'\n")
	for own, limit := range map[string]string{
		"day = '4'\nhosts.'a.example'.day = '1'\n" + fleet + team + "day = '1'\n": "",
		"day = '4'\nrate = 2\n" + fleet + team + "per_call = '0.1'\n":             "",
		"session = '1'\n" + fleet:                    "the session of org",
		"hosts.'b.example'.day = '1'\n" + fleet:      "the day of host:b.example",
		fleet + team + "month = '3'\n":               "the month of team:research",
		fleet + team + "rate = 3\n":                  "the rate of team:research",
		fleet + "[budget.agents.'x-*']\nday = '1'\n": "the day of each:x-*",
	} {
		err := keptLimits(parse("[budget]\n"+own), owners)
		if limit == "" {
			require.NoError(t, err, own)
			continue
		}
		require.True(t, x402.HasCode(err, x402.SetupFailed), "%v", err)
		require.ErrorContains(t, err, limit)
	}
}
