package environ

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/publicnode"
)

// defaults are the rules of an empty file.
func defaults(t *testing.T) *config.Config {
	t.Helper()
	return must.Get(config.Parse(nil))(t)
}

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
	env := Read()
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
		for _, name := range append(config.Secrets, authorities...) {
			assert.False(t, strings.HasPrefix(line, name+"="), "%s stays", name)
		}
	}
	t.Setenv("NO_COLOR", "")
	assert.False(t, Read().NoColor)
}

func TestSecretNeverShows(t *testing.T) {
	s := config.Secret("hunter2-hunter2")
	env := Env{Passphrase: s}
	var log strings.Builder
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(handler).Info("x", "s", s, "p", &s, "env", env)
	}
	coded := must.Get(json.Marshal(map[string]any{"s": s, "p": &s, "env": env}))(t)
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
	warnings := Ignored(env, sealed)
	require.Len(t, warnings, 5)
	for i, name := range []string{"AGENT_KEYPAIR_PATH", "SOLANA_RPC_URL", "SOLANA_NETWORK",
		"X402_FACILITATOR_URL", "X402_FACILITATOR_FALLBACK_URL"} {
		assert.True(t, strings.HasPrefix(warnings[i], name+" is set"), warnings[i])
		assert.NotContains(t, warnings[i], "sekret")
	}
	same := must.Get(Over(sealed, env))(t)
	assert.Same(t, sealed, same, "without env = true the environment changes nothing")

	open := must.Get(config.Parse([]byte("env = true\n[networks.solana-devnet]\ntoken_account = " +
		"\"4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU\"")))(t)
	assert.Len(t, Ignored(env, open), 1, "the key file counts in init only")
	over := must.Get(Over(open, env))(t)
	node := over.Networks[solanaDevnet]
	assert.Equal(t, []string{env.SolanaRPC, "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"},
		[]string{node.RPC, node.TokenAccount})
	assert.Equal(t, []string{solanaDevnet, baseSepolia}, over.Policy.Prefer)
	assert.Equal(t, []string{"f1.example", "f2.example"}, []string{over.Facilitators[0].Name,
		over.Facilitators[1].Name})
	assert.Equal(t, publicnode.Of(solanaDevnet), open.Networks[solanaDevnet].RPC,
		"the configuration itself is not touched")

	_, err := Over(open, Env{SolanaRPC: "http://169.254.169.254/"})
	assert.ErrorContains(t, err, "SOLANA_RPC_URL")
	assert.True(t, x402.HasCode(err, x402.SetupFailed), "a person's mistake, not the wallet's")
	assert.Empty(t, Ignored(Env{}, sealed))
}

// Another program gets the basics and what is named for it, and never the wallet's own.
func TestChildEnv(t *testing.T) {
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "DISPLAY", "SOME_SECRET", "WEATHER_KEY",
		"X402_WALLET_HOME", "SOLANA_RPC_URL"} {
		t.Setenv(name, "v-"+name)
	}
	basic := []string{"PATH=v-PATH", "HOME=v-HOME", "LANG=v-LANG", "TMPDIR=v-TMPDIR"}
	if runtime.GOOS == "windows" {
		require.Subset(t, Child(), basic)
		return
	}
	require.Equal(t, basic, Child())
	require.Equal(t, append(basic, "WEATHER_KEY=v-WEATHER_KEY"), Child("WEATHER_KEY", "NOT_SET", "PATH"))
	require.Contains(t, Desktop(), "DISPLAY=v-DISPLAY")
	require.NotContains(t, Desktop(), "SOME_SECRET=v-SOME_SECRET")
	own := Own("/a/home")
	require.Subset(t, own, append(basic, "X402_WALLET_HOME=/a/home", "SOLANA_RPC_URL=v-SOLANA_RPC_URL"))
	require.NotContains(t, own, "X402_WALLET_HOME=v-X402_WALLET_HOME")
}

func TestHome(t *testing.T) {
	home := must.Get(Home(Env{Home: "/srv/wallet"}))(t)
	assert.Equal(t, filepath.FromSlash("/srv/wallet"), home)
	home = must.Get(Home(Env{Home: "relative"}))(t)
	assert.True(t, filepath.IsAbs(home))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	home = must.Get(Home(Env{}))(t)
	assert.Equal(t, "x402-wallet", filepath.Base(home))
}

// Hosts hand on what their settings say. What a shell would have read is read as it does; else there would be
// a second wallet in a folder called "~".
func TestAHomeThatNoShellHasRead(t *testing.T) {
	t.Setenv("HOME", "/home/o'brien")
	t.Setenv("USERPROFILE", "/home/o'brien")
	for path, want := range map[string]string{
		"~": "/home/o'brien", "~/w": "/home/o'brien/w", "$HOME": "/home/o'brien",
		"$HOME/w": "/home/o'brien/w",
		"${HOME}": "/home/o'brien", "${HOME}/.config/w": "/home/o'brien/.config/w", "/srv/~w": "/srv/~w",
		"/home/o'brien/w": "/home/o'brien/w", "/srv/a~": "/srv/a~", "~/": "/home/o'brien",
	} {
		assert.Equal(t, filepath.FromSlash(want), must.Get(Home(Env{Home: path}))(t), path)
	}
	for _, path := range []string{"~alice/w", "~~", "$HOMES/w", "${HOME", "${HOME}x", "$HOME$USER",
		"/srv/$USER/w",
		"${userHome}/w", "${env:HOME}/w", "$(pwd)/w", "~/$X", `"/srv/w"`, "'/srv/w'", "$USER"} {
		home, err := Home(Env{Home: path})
		require.Empty(t, home, path)
		require.Equal(t, x402.SetupFailed, x402.AsError(err).Code, path)
		require.Contains(t, err.Error(), "no shell has read it", path)
	}
	t.Setenv("HOME", "")
	t.Setenv("USERPROFILE", "")
	require.ErrorContains(t, must.Err(Home(Env{Home: "~/w"})), "names no home directory")
	t.Setenv("HOME", "/home/a")
	t.Setenv("X402_WALLET_PASSPHRASE_FILE", "~/pass")
	t.Setenv("USERPROFILE", "/home/a")
	require.Equal(t, "/home/a/pass", Read().PassphraseFile)
}

func TestSessionBus(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x")
	require.Equal(t, "unix:path=/x", SessionBus())
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	require.Equal(t, "unix:path=/run/user/7/bus", SessionBus())
	t.Setenv("XDG_RUNTIME_DIR", "")
	require.Regexp(t, `^unix:path=/run/user/\d+/bus$`, SessionBus())
}

func TestTemplateIsTheDefaults(t *testing.T) {
	text := must.Get(Template(Env{}))(t)
	c := must.Get(config.Parse(text))(t)
	c.Raw = nil
	want := defaults(t)
	want.Raw = nil
	assert.Equal(t, want, c)
}

func TestTemplateImportsOzskrEnvironment(t *testing.T) {
	env := Env{SolanaRPC: "https://rpc.example/?api-key=k", SolanaNetwork: "mainnet-beta",
		FacilitatorURL: cdpURL, FacilitatorFallback: "https://fac.example/x402/"}
	text := must.Get(Template(env))(t)
	c := must.Get(config.Parse(text))(t)
	assert.Equal(t, env.SolanaRPC, c.Networks[config.SolanaMainnet].RPC)
	assert.Equal(t, []string{config.SolanaMainnet, config.Base}, c.Policy.Prefer)
	assert.Equal(t, []config.Facilitator{
		{Name: "cdp", URL: cdpURL, Auth: "cdp"}, {Name: "fac.example", URL: "https://fac.example/x402",
			Auth: "none"},
	}, c.Facilitators)
	assert.Empty(t, Ignored(env, c), "what init took in is no news")

	// The ozskr wallet's default network is devnet; a test network prefers test money elsewhere too.
	text = must.Get(Template(Env{SolanaRPC: "http://127.0.0.1:8899"}))(t)
	c = must.Get(config.Parse(text))(t)
	assert.Equal(t, "http://127.0.0.1:8899", c.Networks[solanaDevnet].RPC)
	assert.Equal(t, []string{solanaDevnet, baseSepolia}, c.Policy.Prefer)

	for _, bad := range []Env{{SolanaNetwork: "localnet"}, {SolanaRPC: "http://rpc.example"},
		{FacilitatorURL: "x\n[budget]"}} {
		assert.Error(t, must.Err(Template(bad)), "%+v", bad)
	}
}

func TestFacilitatorList(t *testing.T) {
	names := func(env Env) (names []string) {
		for _, f := range Facilitators(defaults(t), env) {
			names = append(names, f.Name+" "+strings.Join(f.Networks, ","))
		}
		return names
	}
	assert.Equal(t, []string{"x402.org testnets", "payai "}, names(Env{}))
	assert.Equal(t, []string{"x402.org testnets", "payai "}, names(Env{CDPKeyID: "id"}), "half a key is none")
	assert.Equal(t, []string{"cdp mainnets", "x402.org testnets", "payai "},
		names(Env{CDPKeyID: "id", CDPKeySecret: "s"}))

	c := must.Get(config.Parse([]byte("[[facilitators]]\nurl = 'http://127.0.0.1:4022'\n")))(t)
	assert.Equal(t, c.Facilitators, Facilitators(c, Env{}))
}

func TestLedgerPasswordOfTheEnvironment(t *testing.T) {
	t.Setenv("X402_WALLET_LEDGER_PASSWORD", "hunter2hunter2")
	env := Read()
	require.Equal(t, "hunter2hunter2", env.LedgerPassword.Reveal())
	_, stays := os.LookupEnv("X402_WALLET_LEDGER_PASSWORD")
	require.False(t, stays)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", env, env, env), "hunter2")
	require.Contains(t, config.Secrets, "X402_WALLET_LEDGER_PASSWORD", "no program of ours gets it")
}
