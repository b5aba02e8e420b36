//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

// echo is the seller that the README buys from; here the sandbox's stands in for it.
const echo = "https://x402.payai.network/api/base-sepolia/paid-content"

// readme is what becomes of each line that the README and docs/getting-started.md tell a newcomer to type,
// in their order.
var readme = []struct {
	line string // as the README has it
	not  string // why it is not run here
	asks string // what the program asks for, and the answer: QUESTION=ANSWER|…; without one, the passphrase
	code int
	sees string // a regular expression of what is seen
	then func(*newcomer)
}{
	{line: "make demo", not: "TestDemo in cli builds and runs it"},
	{line: "make build && sudo install bin/x402-wallet /usr/local/bin/", not: "not a test's to do"},
	{line: "x402-wallet init", asks: "not shown): |The same again: |Which (1)? =none|[y/N]=n|" +
		"(Enter: nothing)?=",
		sees: `The wallet is in [\s\S]*\n  0x[\s\S]*Next:\n  1\. back up keystore[\s\S]*x402-wallet doctor\n$`,
		then: (*newcomer).isFunded},
	{line: "x402-wallet install claude-code", sees: `\+ "x402-wallet": \{[\s\S]*Claude Code: done`},
	{line: "x402-wallet doctor", sees: `ok    clients: Claude Code starts this wallet\n[\s\S]*failed: 0\n$`},
	{line: "x402-wallet estimate " + echo, sees: `\$0\.001 .*Base Sepolia`, then: hasPaid(0)},
	{line: "x402-wallet pay --max 0.05 " + echo, asks: "Passphrase: ",
		sees: `Lisbon[\s\S]*paid: \$0\.001 in USDC on Base Sepolia`, then: hasPaid(1)},
	{line: "x402-wallet address --qr", sees: `0x[0-9a-fA-F]{40}\n\n.*█`},
	{line: "x402-wallet balance", sees: `Base Sepolia +USDC +0\.999 `},
	{line: "x402-wallet delegation approve --owner-keypair ~/.config/solana/id.json --amount 25",
		sees: `may spend up to 25 `},
	{line: "x402-wallet delegation show", sees: `may spend +25 USDC\n`},
	{line: "x402-wallet delegation revoke --owner-keypair ~/.config/solana/id.json", sees: `^revoked: `},
	{line: "x402-wallet history --plot", sees: `█{40}  \$0\.001\n`},
	{line: "x402-wallet budget set day 5.00", sees: `tightens budget\.day: \$10\.00 → \$5\.00`},
	{line: "x402-wallet policy deny api.example.com", sees: `done: these rules apply`},
	{line: "x402-wallet approvals", sees: `^nothing is waiting`},
	{line: "x402-wallet export --format beancount", sees: `"127\.0\.0\.1[\s\S]*0\.001`},
	{line: "x402-wallet freeze", sees: `^frozen: nothing is paid until you run x402-wallet unfreeze`},
	{line: "x402-wallet unfreeze", asks: "allow payments again: ", sees: `payments are allowed again\n$`,
		then: hasPaid(1)},
}

// newcomer sits at a terminal with a home of their own, in which is nothing but what is theirs: the
// Solana key that they delegate with, and here the rules that name the stand-ins, since the nodes
// that are built in are out in the world.
type newcomer struct {
	t    *testing.T
	w    *world
	home string
}

// TestReadmeAsANewcomer types what the README says, line by line, on one terminal 80 columns wide.
func TestReadmeAsANewcomer(t *testing.T) {
	t.Parallel()
	w, err := newWorld(sandbox.Options{})
	require.NoError(t, err)
	t.Cleanup(w.close)
	n := &newcomer{t, w, t.TempDir()}
	settings := filepath.Join(n.home, ".config") // XDG's
	if runtime.GOOS == "darwin" {
		settings = filepath.Join(n.home, "Library", "Application Support")
	}
	for file, text := range map[string]string{
		filepath.Join(settings, "x402-wallet", "config.toml"): w.rules(sandbox.Rules{}),
		filepath.Join(n.home, ".config", "solana", "id.json"): string(w.OwnerKeypair),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}

	lines := steps(t, "README.md", "docs/getting-started.md")
	for i, step := range readme {
		require.Less(t, i, len(lines), "the README does not have %q", step.line)
		require.Equal(t, step.line, lines[i], "the README and its test differ")
		if step.not == "" {
			n.types(step.line, step.asks, step.code, step.sees)
		}
		if step.then != nil {
			step.then(n)
		}
	}
	require.Len(t, lines, len(readme), "lines of the README that nobody tried")
}

// types runs a line and types the passphrase for each of what it asks.
func (n *newcomer) types(line, asks string, code int, sees string) {
	n.t.Helper()
	line = strings.ReplaceAll(line, echo, n.w.SellerURL+"/weather")
	line = strings.ReplaceAll(line, "~", n.home) // what their shell does
	c := sit(n.t, nil, []string{"HOME=" + n.home, "NO_COLOR=1", "TERM=xterm-256color"},
		strings.Fields(line)[1:]...)
	for ask := range strings.SplitSeq(asks, "|") {
		if ask != "" {
			ask, answer, given := strings.Cut(ask, "=")
			if !given {
				answer = testPassphrase
			}
			c.sees(ask, 1)
			c.types(answer + "\n")
		}
	}
	seen := c.ends(code)
	n.t.Logf("$ %s\n%s", line, seen) // go test -v shows the whole of it
	require.Regexp(n.t, sees, seen, line)
	require.NotContains(n.t, seen, testPassphrase, line)
	require.NotContains(n.t, seen, "\x1b", line)
}

// isFunded is somebody who sends a dollar to the address that init printed.
func (n *newcomer) isFunded() {
	seen := sit(n.t, nil, []string{"HOME=" + n.home}, "address").ends(0)
	n.w.Fund(regexp.MustCompile(`0x[0-9a-fA-F]{40}`).FindString(seen), sandbox.USDC)
}

func hasPaid(times int) func(*newcomer) {
	return func(n *newcomer) { require.Len(n.t, n.w.Settlements(), times) }
}
