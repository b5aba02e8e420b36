package config

import (
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// What programs get and may is the owner's to say, and what is said wrongly is refused.
func TestProgramsOfTheRules(t *testing.T) {
	for text, wrong := range map[string]string{
		"[servers.a]\ncommand=['x']\nenv=['X402_WALLET_HOME']":     "the wallet's own",
		"[servers.a]\ncommand=['x']\nenv=['x402_wallet_home']":     "the wallet's own",
		"[servers.a]\ncommand=['x']\nenv=['CDP_API_KEY_SECRET']":   "the wallet's own",
		"[servers.a]\ncommand=['x']\nenv=['PAYAI_API_KEY_SECRET']": "the wallet's own",
		"[servers.a]\ncommand=['x']\nenv=['A=b']":                  "not the name of a variable",
		"[servers.a]\ncommand=['x']\nenv=['']":                     "not the name of a variable",
		"[servers.a]\nurl='https://a.example'\nenv=['A']":          "for a server with a command",
		"[servers.a]\nurl='https://a.example'\nsandbox=true":       "for a server with a command",
		"[keystore]\npassphrase_command=['pass','show']":           "full path",
		"[keystore]\npassphrase_command=['./pass']":                "full path",
		"[keystore]\npassphrase_command=['']":                      "full path",
		"[keystore]\nsandbox=false":                                "there is none",
		"[ledger]\nurl='postgres://u@h/d'\nsandbox=false":          "there is none",
	} {
		require.ErrorContains(t, must.Err(Parse([]byte(text))), wrong, text)
	}
	c := rules(t, "[servers.a]\ncommand=['x']\nenv=['A']\nsandbox=false\n[servers.b]\ncommand=['x']")
	require.Equal(t, []string{"A"}, c.Servers["a"].Env)
	require.False(t, *c.Servers["a"].Sandbox)
	require.Nil(t, c.Servers["b"].Sandbox)
}
