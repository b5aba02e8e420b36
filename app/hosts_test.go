package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
)

// A command server of the sealed file may be paid where the owner allows only some hosts; one at a
// URL is a host like others, and a denial holds for both.
func TestServersOfTheOwnersAreAllowed(t *testing.T) {
	c := must.Get(config.Parse([]byte("[servers.Shop]\ncommand = ['shop']\n" +
		"[servers.far]\nurl = 'https://far.example/mcp'")))(t)
	require.NoError(t, budgetRules(c).CheckHost("", "anywhere.example"))
	c.Policy.AllowHosts = []string{"api.example"}
	require.NoError(t, budgetRules(c).CheckHost("", "shop"))
	require.NoError(t, budgetRules(c).CheckHost("", "api.example"))
	require.Error(t, budgetRules(c).CheckHost("", "far"))
	require.Error(t, budgetRules(c).CheckHost("", "far.example"))
	c.Policy.DenyHosts = []string{"shop"}
	require.Error(t, budgetRules(c).CheckHost("", "shop"))
}
