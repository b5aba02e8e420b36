package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

func TestReadEnv(t *testing.T) {
	names := []string{"X402_WALLET_HOME", "LOG_LEVEL", "LOG_FORMAT", "NO_COLOR", "CDP_API_KEY_ID",
		"CDP_API_KEY_SECRET",
		"PAYAI_API_KEY_ID",
		"PAYAI_API_KEY_SECRET", "X402_WALLET_PASSPHRASE_FILE", "X402_WALLET_PASSPHRASE", "SOLANA_RPC_URL",
		"SOLANA_NETWORK",
		"AGENT_KEYPAIR_PATH", "X402_FACILITATOR_URL", "X402_FACILITATOR_FALLBACK_URL", "SSL_CERT_FILE",
		"SSL_CERT_DIR"}
	for _, name := range names {
		t.Setenv(name, "v-"+name)
	}
	env := ReadEnv()
	assert.Equal(t, Env{
		Home: "v-X402_WALLET_HOME", LogLevel: "v-LOG_LEVEL", LogFormat: "v-LOG_FORMAT", NoColor: true,
		CDPKeyID: "v-CDP_API_KEY_ID", CDPKeySecret: "v-CDP_API_KEY_SECRET",
		PayAIKeyID: "v-PAYAI_API_KEY_ID", PayAIKeySecret: "v-PAYAI_API_KEY_SECRET", Authorities: true,
		PassphraseFile: "v-X402_WALLET_PASSPHRASE_FILE", Passphrase: "v-X402_WALLET_PASSPHRASE",
		SolanaRPC: "v-SOLANA_RPC_URL", SolanaNetwork: "v-SOLANA_NETWORK",
		AgentKeypair:   "v-AGENT_KEYPAIR_PATH",
		FacilitatorURL: "v-X402_FACILITATOR_URL", FacilitatorFallback: "v-X402_FACILITATOR_FALLBACK_URL",
	}, env)
	for _, line := range os.Environ() {
		for _, name := range append(secrets, authorities...) {
			assert.False(t, strings.HasPrefix(line, name+"="), "%s stays", name)
		}
	}
	t.Setenv("NO_COLOR", "")
	assert.False(t, ReadEnv().NoColor)
}

func TestSecretNeverShows(t *testing.T) {
	s := Secret("hunter2-hunter2")
	env := Env{Passphrase: s}
	var log strings.Builder
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(handler).Info("x", "s", s, "p", &s, "env", env)
	}
	coded, err := json.Marshal(map[string]any{"s": s, "p": &s, "env": env})
	require.NoError(t, err)
	shown := log.String() + string(coded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, &s) + fmt.Sprintf(verb, env)
	}
	assert.NotContains(t, shown, "hunter2")
	assert.NotContains(t, strings.ToLower(shown), fmt.Sprintf("%x", "hunter2"))
	assert.Contains(t, shown, "[redacted]")
	assert.Equal(t, "hunter2-hunter2", s.Reveal())
}

func TestOzskrEnvironmentAfterInit(t *testing.T) {
	env := Env{SolanaRPC: "https://rpc.example/?api-key=sekret", SolanaNetwork: "devnet",
		AgentKeypair:   "/k.json",
		FacilitatorURL: "https://f1.example", FacilitatorFallback: "https://f2.example"}
	sealed := defaults(t)
	warnings := IgnoredEnv(env, sealed)
	require.Len(t, warnings, 5)
	for i, name := range []string{"AGENT_KEYPAIR_PATH", "SOLANA_RPC_URL", "SOLANA_NETWORK",
		"X402_FACILITATOR_URL", "X402_FACILITATOR_FALLBACK_URL"} {
		assert.True(t, strings.HasPrefix(warnings[i], name+" is set"), warnings[i])
		assert.NotContains(t, warnings[i], "sekret")
	}
	same, err := sealed.WithEnv(env)
	require.NoError(t, err)
	assert.Same(t, sealed, same, "without env = true the environment changes nothing")

	open, err := Parse([]byte("env = true\n[networks.solana-devnet]\ntoken_account = " +
		"\"4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU\""))
	require.NoError(t, err)
	assert.Len(t, IgnoredEnv(env, open), 1, "the key file counts in init only")
	over, err := open.WithEnv(env)
	require.NoError(t, err)
	assert.Equal(t, network{RPC: env.SolanaRPC, TokenAccount: "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"},
		over.Networks[solanaDevnet])
	assert.Equal(t, []string{solanaDevnet, baseSepolia}, over.Policy.Prefer)
	assert.Equal(t, []string{"f1.example", "f2.example"}, []string{over.Facilitators[0].Name,
		over.Facilitators[1].Name})
	assert.Equal(t, x402.PublicNode(solanaDevnet), open.Networks[solanaDevnet].RPC,
		"the configuration itself is not touched")

	_, err = open.WithEnv(Env{SolanaRPC: "http://169.254.169.254/"})
	assert.ErrorContains(t, err, "SOLANA_RPC_URL")
	assert.True(t, x402.HasCode(err, x402.SetupFailed), "a person's mistake, not the wallet's")
	assert.Empty(t, IgnoredEnv(Env{}, sealed))
}

// Another program gets the basics and what is named for it, and never the wallet's own.
func TestChildEnv(t *testing.T) {
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "DISPLAY", "SOME_SECRET", "WEATHER_KEY",
		"X402_WALLET_HOME", "SOLANA_RPC_URL"} {
		t.Setenv(name, "v-"+name)
	}
	basic := []string{"PATH=v-PATH", "HOME=v-HOME", "LANG=v-LANG", "TMPDIR=v-TMPDIR"}
	if runtime.GOOS == "windows" {
		require.Subset(t, ChildEnv(), basic)
		return
	}
	require.Equal(t, basic, ChildEnv())
	require.Equal(t, append(basic, "WEATHER_KEY=v-WEATHER_KEY"), ChildEnv("WEATHER_KEY", "NOT_SET", "PATH"))
	require.Contains(t, DesktopEnv(), "DISPLAY=v-DISPLAY")
	require.NotContains(t, DesktopEnv(), "SOME_SECRET=v-SOME_SECRET")
	own := OwnEnv("/a/home")
	require.Subset(t, own, append(basic, "X402_WALLET_HOME=/a/home", "SOLANA_RPC_URL=v-SOLANA_RPC_URL"))
	require.NotContains(t, own, "X402_WALLET_HOME=v-X402_WALLET_HOME")
}

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
	} {
		_, err := Parse([]byte(text))
		require.ErrorContains(t, err, wrong, text)
	}
	c := rules(t, "[servers.a]\ncommand=['x']\nenv=['A']\nsandbox=false\n[servers.b]\ncommand=['x']")
	require.Equal(t, []string{"A"}, c.Servers["a"].Env)
	require.False(t, *c.Servers["a"].Sandbox)
	require.Nil(t, c.Servers["b"].Sandbox)
}
