// Package environ reads the environment: what the owner set for this wallet, and what other programs get of
// it.
//
// What must stay true: the only os.Getenv of the project is here, and no secret stays in the environment.
package environ

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/internal/config"
	"x402-wallet/x402"
)

// Env is the environment, read once at start: each field from the variable that its tag names.
type Env struct {
	Home     string `env:"X402_WALLET_HOME"`
	LogLevel string `env:"LOG_LEVEL"` // debug, info, warn or error
	// LogText or LogJSON; "": as the rules say. What is neither is as if it were not set
	LogFormat string `env:"LOG_FORMAT"`
	NoColor   bool   // NO_COLOR is set and not empty

	Service string        `env:"X402_WALLET_SERVICE"` // the socket of the wallet's service; "off": none
	Token   config.Secret `env:"X402_WALLET_TOKEN"`   // the agent's, at the service
	// LedgerPassword is that of a ledger in PostgreSQL.
	LedgerPassword config.Secret `env:"X402_WALLET_LEDGER_PASSWORD"`
	// Handed: the service has started this process for an owner's command, HandedTerminal or
	// HandedNoTerminal; "": it is anybody's.
	Handed string `env:"X402_WALLET_HANDED"`

	ClaudeConfig string `env:"CLAUDE_CONFIG_DIR"` // where Claude Code keeps its settings
	CodexHome    string `env:"CODEX_HOME"`        // Codex
	ToolTimeout  string `env:"MCP_TOOL_TIMEOUT"`  // how long Claude Code waits for a tool, in milliseconds

	CDPKeyID       string        `env:"CDP_API_KEY_ID"`
	CDPKeySecret   config.Secret `env:"CDP_API_KEY_SECRET"`
	PayAIKeyID     string        `env:"PAYAI_API_KEY_ID"`
	PayAIKeySecret config.Secret `env:"PAYAI_API_KEY_SECRET"`

	// OtherProxy is the variable that names a proxy, which the wallet does not use; "": none does
	OtherProxy string

	Authorities bool // SSL_CERT_FILE or SSL_CERT_DIR was set

	PassphraseFile string `env:"X402_WALLET_PASSPHRASE_FILE"`
	Credentials    string `env:"CREDENTIALS_DIRECTORY"` // systemd's, of this service; "": it has none
	// works, but whoever can start a program here can read it
	Passphrase config.Secret `env:"X402_WALLET_PASSPHRASE"`

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
func Child(names ...string) (env []string) {
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

// Desktop is that of a program that shows something to the person, such as the browser.
func Desktop() []string { return Child(display...) }

// Own is that of this program, started again for a home: what its rules may read, and no secret.
func Own(home string) []string {
	env := Child("LOG_LEVEL", "LOG_FORMAT", "SOLANA_RPC_URL", "SOLANA_NETWORK", "X402_FACILITATOR_URL",
		"X402_FACILITATOR_FALLBACK_URL")
	return append(env, "X402_WALLET_HOME="+home)
}

// Handed is Own for an owner's command that came to the socket of a service.
func Handed(home, service, handed string, noColor bool) []string {
	env := append(Own(home), "X402_WALLET_SERVICE="+service, "X402_WALLET_HANDED="+handed)
	if noColor {
		env = append(env, "NO_COLOR=1")
	}
	return env
}

// LauncherEnv is what child.ExecConfined hands on as it was given.
func Launcher() []string { return os.Environ() }

// authorities are variables by which Go would take other certificate authorities than the system's:
// whoever sets them (a project's .env) could read what goes to sellers and nodes, and answer for
// them.
var authorities = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// ReadEnv reads the environment and takes the config.Secrets out of it, so that no child process inherits
// them. It is called once: a second call finds no config.Secrets. (What /proc shows of this process at its
// start cannot be taken back.)
func Read() (env Env) {
	values := reflect.ValueOf(&env).Elem()
	for i := range values.NumField() {
		if name := values.Type().Field(i).Tag.Get("env"); name != "" {
			values.Field(i).SetString(os.Getenv(name))
		}
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		if os.Getenv(name) != "" {
			env.OtherProxy = name
			break
		}
	}
	if file, err := Expand(env.PassphraseFile); err == nil { // else it is said where it is read
		env.PassphraseFile = file
	}
	env.NoColor = os.Getenv("NO_COLOR") != ""
	env.Authorities = os.Getenv(authorities[0]) != "" || os.Getenv(authorities[1]) != ""
	for _, name := range slices.Concat(config.Secrets, authorities) {
		_ = os.Unsetenv(name)
	}
	return env
}

// SignerSecretEnv is the variable that a signer's credentials are in; "" where it is not set.
func SignerSecret(name string) config.Secret { return config.Secret(os.Getenv(name)) }

// SessionBus is where the D-Bus of the person's session is. Agents' hosts often pass no variable that says
// so.
func SessionBus() string {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		return address
	}
	dir := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), "/run/user/"+strconv.Itoa(os.Geteuid()))
	return "unix:path=" + dir + "/bus"
}

// Home is the wallet's directory: X402_WALLET_HOME, else <user config dir>/x402-wallet.
// SETUP_FAILED where the environment names neither.
func Home(env Env) (home string, err error) {
	if env.Home != "" {
		home, err = Expand(env.Home)
		if err != nil {
			return "", x402.Errorf(x402.SetupFailed, "X402_WALLET_HOME is %s: %w", x402.Quote(env.Home), err).
				WithHint("set X402_WALLET_HOME to a directory, with its full path")
		}
		home, err = filepath.Abs(home)
	} else if home, err = os.UserConfigDir(); err == nil {
		home = filepath.Join(home, "x402-wallet")
	}
	if err != nil {
		return "", x402.Errorf(x402.SetupFailed,
			"there is no place for the wallet: the environment has neither X402_WALLET_HOME nor a home "+
				"directory").
			WithHint("set X402_WALLET_HOME to a directory, with its full path")
	}
	return home, nil
}

// Expand is a path as a shell would read it, for hosts that hand on what their settings say: "~", "~/x",
// $HOME and ${HOME} are the person's directory. What else only a shell or a host can read is an error: as a
// name it would be a second wallet.
func Expand(path string) (string, error) {
	rest, isHome := path, false
	for _, prefix := range []string{"~", "$HOME", "${HOME}"} {
		after, found := strings.CutPrefix(path, prefix)
		if found && (after == "" || os.IsPathSeparator(after[0])) {
			rest, isHome = after, true
		}
	}
	isVariable := strings.Contains(rest, "$") || (runtime.GOOS == "windows" && strings.HasPrefix(rest, "%"))
	switch {
	case isVariable:
		return "", errors.New("no shell has read it, and only $HOME at its beginning is known here")
	case strings.HasPrefix(path, `"`) || strings.HasPrefix(path, "'"):
		return "", errors.New("no shell has read it: it begins with a quotation mark")
	case !isHome && strings.HasPrefix(path, "~"):
		return "", errors.New("no shell has read it, and only your own ~ is known here")
	case !isHome:
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("the environment names no home directory")
	}
	return home + rest, nil
}

func (env Env) facilitators() []variable {
	return []variable{{name: "X402_FACILITATOR_URL", url: env.FacilitatorURL},
		{name: "X402_FACILITATOR_FALLBACK_URL", url: env.FacilitatorFallback}}
}
