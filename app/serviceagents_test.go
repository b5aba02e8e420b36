package app

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/oauth/oauthtest"
	"x402-wallet/tools"
)

// The door goes by the rules as they are: another authorization server's tokens count from then on, and the
// one's before no more. What does not concern it leaves its keys as they were fetched.
func TestTheAuthorizationServerOfTheRules(t *testing.T) {
	const audience = "https://wallet.example/mcp"
	home := t.TempDir()
	writes := func(rules string) {
		require.NoError(t, os.WriteFile(filepath.Join(home, config.FileName), []byte(rules), 0o600))
	}
	door := &doorkeeper{home: home, log: slog.New(slog.DiscardHandler),
		load: func() (*config.Config, error) { return config.Load(home) }}
	one, other := oauthtest.New(t, ""), oauthtest.New(t, "")
	takes := func(s *oauthtest.Server) bool {
		name, _, err := door.ByAccessToken(t.Context(), s.Keys[0].Sign(t, s.Claims("a", audience), nil))
		require.Equal(t, err == nil, name == "ann")
		return err == nil
	}
	by := func(s *oauthtest.Server) string {
		return fmt.Sprintf("[service]\naudience = %q\nissuer = %q\n[agents.ann]\nsubject = \"a\"\n", audience,
			s.Issuer)
	}
	writes("[service]\nurl = \"https://wallet.example\"\n")
	require.False(t, takes(one))
	require.Equal(t, tools.Resource{Origin: "https://wallet.example"}, door.Resource())

	writes(by(one))
	require.True(t, takes(one))
	require.False(t, takes(other))
	require.Equal(t, tools.Resource{Issuer: one.Issuer, Audience: audience}, door.Resource())
	writes(by(one) + "day = \"1.00\"\n")
	require.True(t, takes(one))
	require.Equal(t, 1, one.Fetched(oauthtest.KeysPath))

	writes(by(other))
	require.False(t, takes(one))
	require.True(t, takes(other))
	writes("nonsense")
	require.False(t, takes(other), "rules that cannot be read let nobody in")
	require.Equal(t, tools.Resource{}, door.Resource())
}
