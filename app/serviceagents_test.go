package app

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/oauth/oauthtest"
	"x402-wallet/internal/relay"
	"x402-wallet/tools"
	"x402-wallet/x402"
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

// At a fleet's signer the rules are far away: the door goes by those that it knows while their ledger does
// not answer, and says what else is wrong to who would have a name by them.
func TestTheDoorOfAFleet(t *testing.T) {
	const token = "x402w_secret"
	var fails error
	loads := 0
	door := &doorkeeper{inFleet: true, log: slog.New(slog.DiscardHandler),
		load: func() (*config.Config, error) {
			loads++
			if fails != nil {
				return nil, fails
			}
			return config.Parse([]byte("[agents.ann]\ntoken = \"" + callers.TokenHash(token) + "\"\n"))
		}}
	fails = x402.Errorf(x402.PolicyUnsealed, "the enrolment is over")
	_, err := door.bySession(&relay.Session{Token: token})
	require.ErrorIs(t, err, fails)

	fails = nil
	knows := func() bool {
		name, err := door.bySession(&relay.Session{Token: token})
		return err == nil && name == "ann"
	}
	require.True(t, knows())
	_, err = door.bySession(&relay.Session{Token: "another"})
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
	require.Equal(t, 2, loads, "each session is not a question to the ledger")
	door.read = time.Now().Add(-doorTime)
	fails = x402.Errorf(x402.LedgerUnavailable, "it does not answer")
	require.True(t, knows())
	door.read = time.Now().Add(-doorTime)
	fails = x402.Errorf(x402.PolicyUnsealed, "the enrolment is over")
	_, err = door.bySession(&relay.Session{Token: token})
	require.ErrorIs(t, err, fails)
}

// A caller without a name pays from the account that its host names; who has one, from where the rules say.
func TestWhoPaysFromWhichAccount(t *testing.T) {
	text := "[budget.teams.research]\naccount = true\nagents = ['bot-*']\n[budget.teams.desk]\n" +
		"[agents.bot-1]\n[agents.anna]\n"
	door := &doorkeeper{log: slog.New(slog.DiscardHandler),
		inFleet: true, // what was read is good for a while
		load:    func() (*config.Config, error) { return config.Parse([]byte(text)) }}
	for _, c := range []struct{ agent, account, as, code string }{
		{"", "", "", ""},
		{"", "research", "research", ""},
		{"bot-1", "", "bot-1", ""},
		{"bot-1", "research", "bot-1", ""},
		{"anna", "", "anna", ""},
		{"anna", "research", "", "POLICY_DENIED"},
		{"", "desk", "", "INVALID_ARGUMENT"},
		{"", "nobody", "", "INVALID_ARGUMENT"},
	} {
		as, err := door.asAccount(c.agent, c.account)
		require.Equal(t, c.as, as, "%+v", c)
		if c.code == "" {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.EqualValues(t, c.code, x402.AsError(err).Code, "%+v", c)
	}
	require.Equal(t, []string{"research", "", ""}, []string{door.account("bot-1"), door.account("anna"),
		door.account("")})
}
