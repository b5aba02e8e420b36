package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/wallet/fleet"
)

// A signer pays for its machine's own agent, and for those of the rules whom its enrolment covers, in its
// team or below it.
func TestWhomASignerPaysFor(t *testing.T) {
	rules := budget.Rules{
		Teams: budget.Teams{"research": {Agents: []string{"r-1", "r-3"}}, "sales": {Agents: []string{"r-2"}},
			"lab": {Agents: []string{"r-4"}, Parent: "research"}},
		Agents: map[string]budget.Agent{"r-1": {}, "r-2": {}, "r-4": {}, "s-1": {}},
	}
	m := &member{agent: "r-home", covers: fleet.Enrolment{Agent: "r-*", Team: "research"}}
	for agent, pays := range map[string]bool{"r-home": true, "r-1": true, "r-4": true, "r-2": false,
		"r-3": false, "s-1": false, "": false} {
		require.Equal(t, pays, m.paysFor(rules)(agent), agent)
	}
	require.Nil(t, (&member{isOwner: true}).paysFor(rules))
}
