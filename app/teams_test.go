package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The rules of a wallet are those that its owner wrote: teams, limits for each agent of a pattern, and what
// the books call agents that have no label of their own.
func TestTheOwnersTeams(t *testing.T) {
	c := must.Get(config.Parse([]byte(`
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
`)))(t)
	rules := budgetRules(c)
	for agent, most := range map[string]money.Dollars{"anna": 200_000, "bob": 500_000, "cy": 1_000_000} {
		require.NoError(t, rules.CheckCall(agent, most), agent)
		require.True(t, x402.HasCode(rules.CheckCall(agent, most+1), x402.BudgetExceeded), agent)
	}
	require.Error(t, rules.CheckAgent("amy"), "a pattern makes nobody an agent")
	require.Equal(t, map[string]string{"anna": "cost=42 unit=eu", "bob": "own", "cy": ""}, agentLabels(c))
}
