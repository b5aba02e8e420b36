package config

import (
	"fmt"
	"slices"
	"strings"
)

// Secret is a text that never shows itself: whatever prints, logs or encodes it writes [redacted].
// Reveal is the only way to it, so that every use can be found by its name.
type Secret string

const redacted = "[redacted]"

func (s Secret) Reveal() string { return string(s) }

// Format is [redacted] for every verb of package fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText is [redacted], for JSON, TOML, XML and slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Secrets are the variables that are taken out of the environment, and given to no program.
var Secrets = []string{"CDP_API_KEY_SECRET", "PAYAI_API_KEY_SECRET", "X402_WALLET_PASSPHRASE",
	"X402_WALLET_TOKEN", "X402_WALLET_LEDGER_PASSWORD"}

// isOurs reports whether a variable is the wallet's own, or one of its secrets: no other program
// gets it. Windows does not tell their letter case apart.
func isOurs(name string) bool {
	name = strings.ToUpper(name)
	return strings.HasPrefix(name, "X402_") || slices.Contains(Secrets, name)
}
