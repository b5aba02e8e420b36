package config

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"x402-wallet/x402"
)

// Secret is a text that never shows itself: whatever prints, logs or encodes it writes [redacted].
// Reveal is the only way to it, so that every use can be found by its name.
type Secret string

const redacted = "[redacted]"

// Reveal returns the secret text.
func (s Secret) Reveal() string { return string(s) }

// Format is [redacted] for every verb of package fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText is [redacted], for JSON, TOML, XML and slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Env is the environment, read once at start: each field from the variable that its tag names.
type Env struct {
	Home     string `env:"X402_WALLET_HOME"`
	LogLevel string `env:"LOG_LEVEL"` // debug, info, warn or error
	// LogText or LogJSON; "": as the rules say. What is neither is as if it were not set
	LogFormat string `env:"LOG_FORMAT"`
	NoColor   bool   // NO_COLOR is set and not empty

	Service string `env:"X402_WALLET_SERVICE"` // the socket of the wallet's service; "off": none
	Token   Secret `env:"X402_WALLET_TOKEN"`   // the agent's, at the service
	// LedgerPassword is that of a ledger in PostgreSQL.
	LedgerPassword Secret `env:"X402_WALLET_LEDGER_PASSWORD"`
	// Handed: the service has started this process for an owner's command, HandedTerminal or
	// HandedNoTerminal; "": it is anybody's.
	Handed string `env:"X402_WALLET_HANDED"`

	ClaudeConfig string `env:"CLAUDE_CONFIG_DIR"` // where Claude Code keeps its settings
	CodexHome    string `env:"CODEX_HOME"`        // Codex

	CDPKeyID       string `env:"CDP_API_KEY_ID"`
	CDPKeySecret   Secret `env:"CDP_API_KEY_SECRET"`
	PayAIKeyID     string `env:"PAYAI_API_KEY_ID"`
	PayAIKeySecret Secret `env:"PAYAI_API_KEY_SECRET"`

	Authorities bool // SSL_CERT_FILE or SSL_CERT_DIR was set

	PassphraseFile string `env:"X402_WALLET_PASSPHRASE_FILE"`
	Credentials    string `env:"CREDENTIALS_DIRECTORY"` // systemd's, of this service; "": it has none
	// works, but whoever can start a program here can read it
	Passphrase Secret `env:"X402_WALLET_PASSPHRASE"`

	// What the ozskr wallet (@ozskr/x402-solana-mcp) is configured by. init takes it into config.toml;
	// afterwards it counts only under `env = true`.
	SolanaRPC           string `env:"SOLANA_RPC_URL"`
	SolanaNetwork       string `env:"SOLANA_NETWORK"`
	AgentKeypair        string `env:"AGENT_KEYPAIR_PATH"`
	FacilitatorURL      string `env:"X402_FACILITATOR_URL"`
	FacilitatorFallback string `env:"X402_FACILITATOR_FALLBACK_URL"`
}

// Whether a terminal came with an owner's command.
const (
	HandedTerminal   = "terminal"
	HandedNoTerminal = "none"
)

// secrets are taken out of the environment, and given to no program.
var secrets = []string{"CDP_API_KEY_SECRET", "PAYAI_API_KEY_SECRET", "X402_WALLET_PASSPHRASE",
	"X402_WALLET_TOKEN", "X402_WALLET_LEDGER_PASSWORD"}

// basics are the variables that a program which we start gets in any case; on Windows
// none would run without the others.
var (
	basics        = []string{"PATH", "HOME", "LANG", "TMPDIR"}
	windowsBasics = []string{"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP",
		"USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMFILES", "PROGRAMDATA"}
	// display is what a program needs to open a window for the person.
	display = []string{"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CURRENT_DESKTOP",
		"DBUS_SESSION_BUS_ADDRESS"}
)

// ChildEnv is the whole environment of a program that we start: the basics, and what else is named.
func ChildEnv(names ...string) (env []string) {
	list := slices.Concat(basics, names)
	if runtime.GOOS == "windows" {
		list = slices.Concat(basics, windowsBasics, names)
	}
	for i, name := range list {
		value, isSet := os.LookupEnv(name)
		if isSet && !slices.Contains(list[:i], name) {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// DesktopEnv is that of a program that shows something to the person, such as the browser.
func DesktopEnv() []string { return ChildEnv(display...) }

// OwnEnv is that of this program, started again for a home: what its rules may read, and no secret.
func OwnEnv(home string) []string {
	env := ChildEnv("LOG_LEVEL", "LOG_FORMAT", "SOLANA_RPC_URL", "SOLANA_NETWORK", "X402_FACILITATOR_URL",
		"X402_FACILITATOR_FALLBACK_URL")
	return append(env, "X402_WALLET_HOME="+home)
}

// HandedEnv is OwnEnv for an owner's command that came to the service.
func HandedEnv(home, handed string, noColor bool) []string {
	env := append(OwnEnv(home), "X402_WALLET_HANDED="+handed)
	if noColor {
		env = append(env, "NO_COLOR=1")
	}
	return env
}

// LauncherEnv is what child.ExecConfined hands on as it was given.
func LauncherEnv() []string { return os.Environ() }

// isOurs reports whether a variable is the wallet's own, or one of its secrets: no other program
// gets it. Windows does not tell their letter case apart.
func isOurs(name string) bool {
	name = strings.ToUpper(name)
	return strings.HasPrefix(name, "X402_") || slices.Contains(secrets, name)
}

// authorities are variables by which Go would take other certificate authorities than the system's:
// whoever sets them (a project's .env) could read what goes to sellers and nodes, and answer for
// them.
var authorities = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// ReadEnv reads the environment and takes the secrets out of it, so that no child process inherits
// them. It is called once: a second call finds no secrets. (What /proc shows of this process at its
// start cannot be taken back.)
func ReadEnv() (env Env) {
	values := reflect.ValueOf(&env).Elem()
	for i := range values.NumField() {
		if name := values.Type().Field(i).Tag.Get("env"); name != "" {
			values.Field(i).SetString(os.Getenv(name))
		}
	}
	env.NoColor = os.Getenv("NO_COLOR") != ""
	env.Authorities = os.Getenv(authorities[0]) != "" || os.Getenv(authorities[1]) != ""
	for _, name := range slices.Concat(secrets, authorities) {
		_ = os.Unsetenv(name)
	}
	return env
}

// ozskrNetworks are the ozskr wallet's names; it took devnet where none was given.
var ozskrNetworks = map[string]string{
	"": solanaDevnet, "devnet": solanaDevnet, "testnet": solanaTestnet, "mainnet-beta": solanaMainnet,
	"mainnet": solanaMainnet,
}

// ozskrRules is the ozskr wallet's environment in the words of config.toml.
type ozskrRules struct {
	network      string   // CAIP-2; "" when neither network nor node was given
	rpc          string   // of that network; "" when none was given
	prefer       []string // nil when no network was given
	facilitators []Facilitator
}

// ozskr checks the environment's values as strictly as the file's: they end up in it.
func (env Env) ozskr() (ozskrRules, error) {
	var s ozskrRules
	var c checker
	if env.SolanaNetwork != "" || env.SolanaRPC != "" {
		id, ok := ozskrNetworks[env.SolanaNetwork]
		if !ok {
			return s, fmt.Errorf("SOLANA_NETWORK is %q; it must be devnet, testnet or mainnet-beta",
				env.SolanaNetwork)
		}
		s.network, s.rpc = id, env.SolanaRPC
		if s.rpc != "" {
			c.ownerURL("SOLANA_RPC_URL", s.rpc, "https://…")
		}
		s.prefer = []string{id, base}
		if id != solanaMainnet {
			s.prefer = []string{id, baseSepolia}
		}
	}
	for _, v := range env.facilitators() {
		if v.url == "" {
			continue
		}
		if at := c.ownerURL(v.name, v.url, "https://…"); at != nil {
			s.facilitators = append(s.facilitators, knownFacilitator(at))
		}
	}
	if len(s.facilitators) == 2 && s.facilitators[0].Name == s.facilitators[1].Name {
		s.facilitators[1].Name += "-fallback"
	}
	for _, err := range c.errs {
		wrong := err.(*Error) //nolint:errorlint // fail makes no other
		return s, fmt.Errorf("the environment: %s %s", wrong.Key, wrong.Msg)
	}
	return s, nil
}

type variable struct{ name, url string }

func (env Env) facilitators() []variable {
	return []variable{{name: "X402_FACILITATOR_URL", url: env.FacilitatorURL},
		{name: "X402_FACILITATOR_FALLBACK_URL", url: env.FacilitatorFallback}}
}

// knownFacilitator names a facilitator by its host, and knows how the two that need a key are spoken to.
func knownFacilitator(at *url.URL) Facilitator {
	f := Facilitator{Name: at.Host, URL: strings.TrimRight(at.String(), "/"), Auth: "none"}
	switch at.Host {
	case "api.cdp.coinbase.com":
		f.Name, f.Auth = "cdp", "cdp"
	case "facilitator.payai.network":
		f.Name, f.Auth = "payai", "payai"
	}
	return f
}

// WithEnv is the configuration with the ozskr wallet's environment over it, where the sealed file says
// `env = true`; otherwise it is c itself.
func (c *Config) WithEnv(env Env) (*Config, error) {
	if !c.Env {
		return c, nil
	}
	s, err := env.ozskr()
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "%w", err).
			WithHint("correct or unset it: env = true in config.toml lets it count")
	}
	over := *c
	if s.rpc != "" {
		over.Networks = maps.Clone(c.Networks)
		other := c.Networks[s.network]
		other.RPC = s.rpc
		over.Networks[s.network] = other
	}
	if s.prefer != nil {
		over.Policy.Prefer = s.prefer
	}
	if s.facilitators != nil {
		over.Facilitators = s.facilitators
	}
	return &over, nil
}

// IgnoredEnv is a warning for each variable of the ozskr wallet that is set, is not what the configuration
// says already, and does not count. Values are not quoted: a node's URL often holds a key.
func IgnoredEnv(env Env, c *Config) (warnings []string) {
	warn := func(name, where string) {
		warnings = append(warnings, fmt.Sprintf("%s is set, but only config.toml counts: %s", name, where))
	}
	if env.AgentKeypair != "" {
		warn("AGENT_KEYPAIR_PATH", "its key comes in only when a wallet is made, by x402-wallet init "+
			"--import-ozskr FILE in another X402_WALLET_HOME")
	}
	if env.Authorities {
		warnings = append(warnings, "SSL_CERT_FILE and SSL_CERT_DIR are set, but only the system's own "+
			"certificate authorities count")
	}
	if c.Env {
		return warnings
	}
	network, known := ozskrNetworks[env.SolanaNetwork]
	sameNode := known && c.Nodes()[network] == env.SolanaRPC
	if env.SolanaRPC != "" && !sameNode {
		warn("SOLANA_RPC_URL", "set rpc under [networks.\""+network+"\"], or env = true")
	}
	isPreferred := known && slices.Contains(c.Policy.Prefer, network)
	if env.SolanaNetwork != "" && !isPreferred {
		warn("SOLANA_NETWORK", "set prefer under [policy], or env = true")
	}
	for _, v := range env.facilitators() {
		inFile := slices.ContainsFunc(c.Facilitators, func(f Facilitator) bool {
			return f.URL == strings.TrimRight(v.url, "/")
		})
		if v.url != "" && !inFile {
			warn(v.name, "list it under [[facilitators]], or set env = true")
		}
	}
	return warnings
}
