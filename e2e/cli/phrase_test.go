//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

var (
	shownWord   = regexp.MustCompile(`(?m) {1,4}\d+  ([a-z]{3,8})\b`)
	bothAddress = regexp.MustCompile(`Solana\n  (\S+)\n[\s\S]*\n  (0x[0-9a-fA-F]{40})\n`)
)

// From a new wallet to paper and back: the phrase that export-phrase shows, typed into init in another home,
// makes the same addresses. What was said besides has no word of it.
func TestAPhraseFromPaper(t *testing.T) {
	t.Parallel()
	_, home, env := beginner(t)
	env = append(env, passphraseFile(t))
	made := sit(t, nil, env, "init", "--no-input", "--install", "none", "--unlock", "none").ends(0)
	require.Contains(t, made, "x402-wallet export-phrase")
	addresses := bothAddress.FindStringSubmatch(made)
	require.Len(t, addresses, 3, made)

	c := sit(t, nil, env, "export-phrase")
	c.answers("Passphrase: ", testPassphrase, "Press Enter when it is written down", "")
	shown := c.ends(0)
	before, page, _ := strings.Cut(shown, "\x1b[?1049h")
	page, after, _ := strings.Cut(page, "\x1b[?1049l")
	var words []string
	for _, m := range shownWord.FindAllStringSubmatch(page, -1) {
		words = append(words, m[1])
	}
	require.Len(t, words, 24, page)
	require.Contains(t, page, addresses[1])
	require.Contains(t, page, addresses[2])
	require.Contains(t, after, "the recovery phrase of 24 words was shown")
	for _, word := range words[:12] {
		require.NotRegexp(t, `\b`+word+`\b.*\b`+words[12]+`\b`, before+after)
	}

	c = sit(t, nil, env, "export-phrase", "--check")
	c.answers("Passphrase: ", testPassphrase, "Word 1: ", strings.Join(words, " "))
	require.Contains(t, c.ends(0), "that is this wallet's recovery phrase, of 24 words")
	require.NotContains(t, c.text(), words[0]+" "+words[1])

	again := append(env, "X402_WALLET_HOME="+filepath.Join(home, "again"))
	c = sit(t, nil, again, "init", "--import-phrase", "--install", "none", "--unlock", "none")
	c.sees("Word 1: ", 1)
	c.types(strings.Join(words[:2], " ") + "\n")
	c.sees("Word 3: ", 1)
	c.types(strings.Join(words[2:], " ") + "\n")
	c.answers("Are they the ones that you expect? [Y/n]", "y", asksWait, "n", asksPurchase, "")
	restored := c.ends(0)
	require.Equal(t, addresses[1:], bothAddress.FindStringSubmatch(restored)[1:])
	require.NotContains(t, restored, strings.Join(words[:2], " "), "nothing is echoed")
	require.NotContains(t, restored, strings.Join(words[10:12], " "))
}

// A second wallet of the first one's phrase, which stays there: of another account, for the passphrase that
// is typed. What unlocks the first one without a person does not do.
func TestAWalletOfAnotherAccount(t *testing.T) {
	t.Parallel()
	_, home, env := beginner(t)
	env = append(env, passphraseFile(t))
	one := filepath.Join(home, "first")
	made := sit(t, nil, append(env, "X402_WALLET_HOME="+one), "init", "--yes", "--install", "none").ends(0)
	first := bothAddress.FindStringSubmatch(made)
	require.Len(t, first, 3)
	second := append(env, "X402_WALLET_HOME="+filepath.Join(home, "second"))
	of := []string{"init", "--yes", "--install", "none", "--import-phrase-of", one}
	c := sit(t, nil, second, of...)
	c.answers("Passphrase of the wallet in ", testPassphrase)
	require.Contains(t, c.ends(1), "a key at this path is that wallet's own")
	c = sit(t, nil, second, append(of, "--index", "1")...)
	c.answers("Passphrase of the wallet in ", testPassphrase)
	made = c.ends(0)
	require.Contains(t, made, "m/44'/501'/1'/0'")
	require.NotContains(t, made, "export-phrase")
	require.Regexp(t, `keep\s+that, and where they are: m/44'/501'/1'/0' and\s+m/44'/60'/0'/0/1`, made)
	addresses := bothAddress.FindStringSubmatch(made)
	require.Len(t, addresses, 3)
	require.NotEqual(t, first[1], addresses[1])
	require.NotEqual(t, first[2], addresses[2])
	require.Contains(t, sit(t, nil, second, "export-phrase").ends(1), "this keystore has none")
}

// Who does not know the addresses makes nothing; a wrong passphrase of the wallet shows nothing; and a pipe
// behind the command, which somebody else may read, gets nothing.
func TestPhraseIsForItsOwner(t *testing.T) {
	t.Parallel()
	_, home, env := beginner(t)
	env = append(env, "X402_WALLET_HOME="+filepath.Join(home, "new"))
	c := sit(t, nil, env, "init", "--import-phrase", "--phrase-passphrase")
	c.answers("Word 1: ", "test test test test test test test test test test test junk",
		"Word 13 (Enter if that was all): ", "", "BIP-39 passphrase of the phrase (not shown): ",
		"hunter2",
		"Are they the ones that you expect? [Y/n]", "n")
	require.Contains(t, c.ends(1), "these addresses were not meant; nothing was created")
	require.NoDirExists(t, filepath.Join(home, "new"))

	c = sit(t, nil, append(env, passphraseFile(t)), "init", "--yes", "--install", "none", "--export-phrase")
	c.answers("Press Enter when it is written down", "")
	made := c.ends(0)
	require.Contains(t, made, "  24  ")
	require.NotContains(t, made, "x402-wallet export-phrase", "it was just shown")
	c = sit(t, nil, env, "export-phrase")
	c.answers("Passphrase: ", "another passphrase")
	require.NotContains(t, c.ends(4), "1049h")
	require.Contains(t, c.text(), "INVALID_PASSPHRASE")

	out := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	require.NotContains(t, sit(t, out, env, "export-phrase").ends(1), "Passphrase")
	said := must.Get(os.ReadFile(out.Name()))(t)
	require.Contains(t, string(said), "is shown on a terminal alone, and this is none")
}
