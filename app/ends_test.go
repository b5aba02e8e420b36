package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
)

// A host has an end where every entry of its name has one.
func TestEnds(t *testing.T) {
	c := must.Get(config.Parse([]byte(`[policy]
allow_hosts = ["a.example until 2027-01-01", "b.example", "c.example until 2027-01-01", "c.example"]
[agents.ann]
until = "2028-01-01"
[networks."solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"]
until = "2027-06-01"
`)))(t)
	rules := budgetRules(c)
	require.Equal(t, []string{"a.example", "b.example", "c.example", "c.example"}, rules.AllowHosts)
	require.Equal(t, map[string]time.Time{"a.example": time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
		rules.Ends)
	require.Equal(t, map[string]time.Time{
		"solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1": time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)},
		rules.NetworkEnds)
	require.Equal(t, 2028, rules.Agents["ann"].Until.Year())
}
