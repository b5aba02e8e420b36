//go:build unix

package cli

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// ozskrKey is a key pair as the Solana command line writes it, and ozskrAddress its address. It is known to
// everybody, and has nothing.
var ozskrKey, ozskrAddress = func() (string, string) {
	pair := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	numbers := make([]int, len(pair))
	for i, b := range pair {
		numbers[i] = int(b)
	}
	text, _ := json.Marshal(numbers) // cannot fail
	return string(text), solana.PublicKeyFromBytes(pair[ed25519.SeedSize:]).String()
}()

// beginner is at a terminal with nothing but two MCP clients and the rules of the sandbox's world.
func beginner(t *testing.T) (w *world, home string, env []string) {
	t.Helper()
	w = must.Get(newWorld(sandbox.Options{}))(t)
	t.Cleanup(w.close)
	home = t.TempDir()
	settings := filepath.Join(home, ".config")
	if runtime.GOOS == "darwin" {
		settings = filepath.Join(home, "Library", "Application Support")
	}
	for file, text := range map[string]string{
		filepath.Join(settings, "x402-wallet", "config.toml"): w.rules(sandbox.Rules{}),
		filepath.Join(home, ".cursor", "mcp.json"):            "{}\n",
		filepath.Join(home, ".codex", "config.toml"):          "model = \"gpt-5\"\r\n",
		filepath.Join(home, "id.json"):                        ozskrKey,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return w, home, []string{"HOME=" + home, "NO_COLOR=1", "TERM=xterm-256color"}
}

// From nothing to the first payment in one sitting: key of the ozskr wallet, passphrase, unlocking, client,
// money, purchase.
func TestFromInitToTheFirstPayment(t *testing.T) {
	t.Parallel()
	w, home, env := beginner(t)
	c := sit(t, nil, append(env, "AGENT_KEYPAIR_PATH="+filepath.Join(home, "id.json")), "init")
	c.answers("Take its key into this wallet, so that its Solana address stays? [Y/n]", "",
		asksNew, testPassphrase, asksAgain, testPassphrase,
		asksUnlock, "agent", asksClients, "1", asksWait, "y")
	c.sees("waiting for money on Base Sepolia … (Enter or Ctrl-C goes on without it)", 1)
	w.Fund(regexp.MustCompile(`0x[0-9a-fA-F]{40}`).FindString(c.text()), sandbox.USDC)
	c.answers("arrived: 1 USDC on Base Sepolia\n", "weather", "did you mean: https://weather\n",
		w.SellerURL+"/weather", "That is $0.001 in USDC on Base Sepolia, play money of a test network. "+
			"Pay it? [Y/n]", "")
	seen := c.ends(0)
	t.Logf("$ x402-wallet init\n%s", seen) // go test -v shows the whole of it
	defer func() { sit(t, nil, env, "lock").ends(0) }()
	require.Contains(t, seen, "Solana\n  "+ozskrAddress+"\n", "the address of the ozskr wallet")
	require.Contains(t, seen, "Cursor: done. Now look at Cursor's settings")
	require.Contains(t, seen, "unlocked until ")
	require.Contains(t, seen, "paid: $0.001 in USDC on Base Sepolia to ")
	require.Contains(t, seen, "Next:\n  1. back up keystore.json")
	for _, not := range []string{testPassphrase, "\x1b", "x402-wallet install", "help delegation"} {
		require.NotContains(t, seen, not)
	}
	require.Len(t, w.Settlements(), 1)
	settings := must.Get(os.ReadFile(filepath.Join(home, ".cursor", "mcp.json")))(t)
	require.Contains(t, string(settings), "x402-wallet")
	settings = must.Get(os.ReadFile(filepath.Join(home, ".codex", "config.toml")))(t)
	require.Equal(t, "model = \"gpt-5\"\r\n", string(settings), "it was not chosen")
	require.Contains(t, sit(t, nil, env, "pay", w.SellerURL+"/weather").ends(0), "paid: $0.001",
		"the unlock agent runs")
}

// Whoever wants none of it presses Enter, or Ctrl-C; the wallet is made all the same.
func TestInitTakesNoForAnAnswer(t *testing.T) {
	t.Parallel()
	w, home, env := beginner(t)
	keypair := "AGENT_KEYPAIR_PATH=" + filepath.Join(home, "id.json")
	c := sit(t, nil, append(env, keypair), "init")
	c.answers("[Y/n]", "n")
	c.sees("its key is not imported: this wallet gets a new one. To keep the address, stop here and run "+
		"x402-wallet init --import-solana", 1)
	c.answers(asksNew, testPassphrase, asksAgain, testPassphrase, asksUnlock, "what?")
	c.sees("Which (1)? ", 2)
	c.types("file\n")
	c.answers(asksClients, "0", asksWait, "y")
	c.sees("goes on without it", 1)
	c.types("\x03")
	seen := c.ends(0)
	require.NotContains(t, seen, ozskrAddress)
	require.NotContains(t, seen, testPassphrase)
	require.Regexp(t, `Next:\n  1\. back up[\s\S]*install claude-code\s+--passphrase-file \S+\.passphrase\n`, seen)
	passphrase := regexp.MustCompile(`the passphrase is in (\S+), for nobody but you`).FindStringSubmatch(seen)
	require.NotNil(t, passphrase)
	require.Equal(t, os.FileMode(0o600), must.Get(os.Stat(passphrase[1]))(t).Mode().Perm())
	w.Fund(regexp.MustCompile(`0x[0-9a-fA-F]{40}`).FindString(seen), sandbox.USDC)
	env = append(env, "X402_WALLET_PASSPHRASE_FILE="+passphrase[1])
	require.Contains(t, sit(t, nil, env, "pay", w.SellerURL+"/weather").ends(0), "paid: $0.001")
}

// The key file of the ozskr wallet has to be its owner's alone, and Ctrl-C at a question leaves nothing.
func TestInitRefusesAnOpenKeyFile(t *testing.T) {
	t.Parallel()
	_, home, env := beginner(t)
	key := filepath.Join(home, "id.json")
	env = append(env, "AGENT_KEYPAIR_PATH="+key, "X402_WALLET_HOME="+filepath.Join(home, "new"))
	c := sit(t, nil, env, "init")
	c.sees("[Y/n]", 1)
	c.types("\x03")
	require.Contains(t, c.ends(1), "interrupted")
	require.NoError(t, os.Chmod(key, 0o644))
	c = sit(t, nil, env, "init")
	c.answers("[Y/n]", "y")
	require.Contains(t, c.ends(4), "KEYSTORE_PERMISSIONS")
	require.NoDirExists(t, filepath.Join(home, "new"))
}

// For scripts: flags say what is asked otherwise, also on a terminal.
func TestInitByFlags(t *testing.T) {
	t.Parallel()
	_, home, env := beginner(t)
	require.Contains(t, sit(t, nil, env, "init", "--no-input").ends(1), "--no-input asks nobody for one")
	env = append(env, passphraseFile(t))
	seen := sit(t, nil, env, "init", "--no-input", "--install", "codex", "--unlock", "none").ends(0)
	require.NotContains(t, seen, "?")
	require.Contains(t, seen, "Codex: done")
	settings := must.Get(os.ReadFile(filepath.Join(home, ".codex", "config.toml")))(t)
	require.Contains(t, string(settings), "\r\n[mcp_servers.x402-wallet]\r\n")

	_, home, env = beginner(t)
	c := sit(t, nil, append(env, "AGENT_KEYPAIR_PATH="+filepath.Join(home, "id.json")), "init", "--yes")
	c.answers(asksNew, testPassphrase, asksAgain, testPassphrase)
	seen = c.ends(0)
	for _, done := range []string{"Cursor: done", "Codex: done"} {
		require.Contains(t, seen, done)
	}
	require.NotContains(t, seen, "[Y/n]")
	require.Contains(t, sit(t, nil, env, "init", "--install", "emacs").ends(1), "already a wallet")
}

// An administrator sees what will be done before it is, and no is the usual answer.
func TestServiceInstallAsks(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "image")
	for _, c := range []struct {
		typed string
		code  int
	}{{"\n", 1}, {"n\n", 1}, {"y\n", 0}} {
		sits := sit(t, nil, nil, "service", "install", "--root", root)
		sits.sees("Do it? [y/N]", 1)
		require.ErrorIs(t, must.Err(os.Stat(root)), os.ErrNotExist, "nothing is done before the answer")
		sits.types(c.typed)
		seen := sits.ends(c.code)
		require.Contains(t, seen, "write "+root)
		require.NotContains(t, seen, "run systemctl", "below another root nothing is run")
	}
	require.DirExists(t, root)
}

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
		"Word 13 (Enter if that was all): ", "", "BIP-39 passphrase of the phrase (not shown): ", "hunter2",
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
