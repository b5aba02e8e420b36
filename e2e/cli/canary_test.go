//go:build linux

package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
)

const canaryPassphrase = "canary-7f3a sings in the mine"

// canaryPhrase is a part of a recovery phrase: its words stand together nowhere else.
const canaryPhrase = "candy vintage walnut cruise myth lobster"

func spellings(secret []byte) map[string]string {
	reversed := slices.Clone(secret)
	slices.Reverse(reversed)
	numbers := make([]int, len(secret))
	words := make([]string, len(secret))
	for i, b := range secret {
		numbers[i], words[i] = int(b), strconv.Itoa(int(b))
	}
	list, _ := json.Marshal(numbers)
	escaped, _ := json.Marshal(string(secret))
	return map[string]string{
		"raw": string(secret), "hex": hex.EncodeToString(secret),
		"HEX":       strings.ToUpper(hex.EncodeToString(secret)),
		"base64":    strings.TrimRight(base64.StdEncoding.EncodeToString(secret), "="),
		"base64url": strings.TrimRight(base64.URLEncoding.EncodeToString(secret), "="),
		"base58":    inBase58(secret), "reversed": string(reversed),
		"reversed hex": hex.EncodeToString(reversed),
		"JSON array":   strings.Trim(string(list), "[]"), "decimals": strings.Join(words, " "),
		"JSON":    strings.Trim(string(escaped), `"`),
		"integer": new(big.Int).SetBytes(secret).String(),
	}
}

func inBase58(data []byte) string {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var out []byte
	for n, rest := new(big.Int).SetBytes(data), new(big.Int); n.Sign() > 0; {
		n.DivMod(n, big.NewInt(58), rest)
		out = append(out, digits[rest.Int64()])
	}
	slices.Reverse(out)
	return string(out)
}

type canary struct {
	t                            *testing.T
	program, home, temp, secrets string
	right, wrong, evm, solana    string // files
	said                         bytes.Buffer
	calls, failed                int
}

func (c *canary) file(name, text string) string {
	path := filepath.Join(c.secrets, name)
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (c *canary) env(more ...string) []string {
	return append([]string{"HOME=" + c.temp, "TMPDIR=" + c.temp, "X402_WALLET_HOME=" + c.home,
		"LOG_LEVEL=debug", programVariable + "=" + os.Getenv(programVariable)}, more...)
}

func (c *canary) run(stdin string, env []string, args ...string) {
	cmd := exec.CommandContext(c.t.Context(), c.program, args...)
	cmd.Env = append(c.env("PATH="+os.Getenv("PATH")), env...)
	cmd.Dir, cmd.Stdin = c.temp, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	c.said.Write(out)
	c.calls++
	if err != nil {
		c.failed++
	}
}

// A hundred calls that fail, at the most talkative, leave nothing of the passphrase or the keys in
// what is printed, in the home, in the temporary directory, or in what is left of a process that
// was aborted.
func TestNoCallLeavesATraceOfASecret(t *testing.T) {
	t.Parallel()
	w := must.Get(newWorld(sandbox.Options{}))(t)
	t.Cleanup(w.close)
	dir := t.TempDir()
	c := &canary{t: t, home: filepath.Join(dir, "home"), temp: filepath.Join(dir, "temp"),
		secrets: filepath.Join(dir, "secrets")}
	require.NoError(t, os.Mkdir(c.temp, 0o700))
	require.NoError(t, os.Mkdir(c.secrets, 0o700))
	evm := bytes.Repeat([]byte{0xc7, 0x1e, 0x5a, 0x93}, 8)
	pair := solana.NewWallet().PrivateKey
	c.right, c.wrong = c.file("right", canaryPassphrase+"\n"), c.file("wrong", canaryPassphrase+"!\n")
	c.evm, c.solana = c.file("evm", hex.EncodeToString(evm)), c.file("solana", pair.String())
	c.program = must.Get(exec.LookPath("x402-wallet"))(t)
	var keys []imported.Key
	for chain, path := range map[string]string{wallet.ChainEVM: c.evm, wallet.ChainSolana: c.solana} {
		keys = append(keys, must.Get(imported.Read(t.Context(), "key-file:"+chain, path, nil))(t))
	}
	address, _, err := testworld.MakeHome(c.home, w.rules(sandbox.Rules{}), canaryPassphrase, keys...)
	require.NoError(t, err)

	page := w.SellerURL + "/weather"
	for c.failed < 100 {
		before := c.failed
		c.fails(page, hex.EncodeToString(evm)+"z")
		require.Greater(t, c.failed, before)
	}
	w.Fund(address, sandbox.USDC)
	c.aborted(page)
	c.search([]byte(canaryPassphrase), evm, pair[:32], []byte(canaryPhrase), []byte("walnut cruise"),
		[]byte("canarie"))
}

func (c *canary) fails(page, brokenKey string) {
	tool := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + arguments + "}\n"
	}
	right, wrong := []string{"X402_WALLET_PASSPHRASE_FILE=" + c.right},
		[]string{"X402_WALLET_PASSPHRASE_FILE=" + c.wrong}
	another := []string{"X402_WALLET_HOME=" + c.home + "2"}
	c.run("", nil, "init", "--passphrase-file", c.right, "--import-key-file", c.evm)
	c.run("", another, "init", "--passphrase-file", c.right, "--import-key-file", c.file("broken", brokenKey))
	c.run("", another, "init", "--passphrase-file", c.right, "--import-solana", c.solana)
	c.run("", another, "init", "--passphrase-file", c.right, "--import-evm", c.evm)
	phrase := c.file("phrase", canaryPhrase+" "+canaryPhrase+"\n") // whose checksum is wrong
	c.run("", another, "init", "--passphrase-file", c.right, "--import-phrase-file", phrase)
	c.run("", another, "init", "--passphrase-file", c.right, "--import-phrase-file", c.file("typo",
		canaryPhrase+" canarie\n"))
	c.run("", another, append([]string{"init", "--import-phrase"}, strings.Fields(canaryPhrase)...)...)
	c.run("", another, "init", "--import-phrase="+canaryPhrase)
	c.run("", right, "export-phrase")
	c.run("", wrong, "pay", "--json", page)
	c.run("", []string{"X402_WALLET_PASSPHRASE=" + canaryPassphrase + "!"}, "pay", "--json", page)
	c.run("", right, "pay", "--json", page) // no funds
	c.run("", nil, "pay", "--json", page)
	c.run("", nil, "pay", "--json", "--passphrase="+canaryPassphrase, page)
	c.run("", nil, "pay", "--json", "--passphrase-fd="+canaryPassphrase, page)
	c.run("", nil, "unlock", "--passphrase-fd", canaryPassphrase)
	c.run("", nil, "unlock", canaryPassphrase)
	c.run("", nil, "passphrase", canaryPassphrase, canaryPassphrase)
	c.run("", nil, "unlock", "--passphrase-file", c.wrong)
	c.run("", nil, "passphrase", "--passphrase-file", c.wrong, "--new-passphrase-file", c.right)
	c.run("", nil, "passphrase", "--passphrase-file", c.right, "--new-passphrase-file",
		c.file("weak", canaryPassphrase[:8]))
	c.run("", nil, "passphrase", "--keyring", "--passphrase-file", c.wrong)
	c.run("", nil, "session", "new")
	// an answer that is an error, though the program ends well
	c.run(tool(`{"name":"x402_pay","arguments":{"url":"`+page+`","passphrase":"`+canaryPassphrase+`"}}`),
		right, "mcp")
	c.run(tool(`{"name":"x402_pay","arguments":{"url":"`+page+`"}}`), wrong, "mcp")
}

// aborted is an unlocked process that is aborted: its trace of stacks, and no core.
func (c *canary) aborted(page string) {
	aborted := exec.CommandContext(c.t.Context(), c.program, "unlock", "--foreground", "--passphrase-file",
		c.right)
	aborted.Env = c.env("GOTRACEBACK=crash")
	aborted.Dir = c.temp
	var trace bytes.Buffer
	aborted.Stderr = &trace
	require.NoError(c.t, aborted.Start())
	require.Eventually(c.t, func() bool {
		_, err := os.Stat(filepath.Join(c.home, "agent.sock"))
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	before := c.failed
	c.run("", nil, "pay", "--json", page) // it has signed
	require.Equal(c.t, before, c.failed, "%s", &c.said)
	require.NoError(c.t, aborted.Process.Signal(syscall.SIGABRT))
	require.Error(c.t, aborted.Wait())
	require.Contains(c.t, trace.String(), "SIGABRT")
	c.said.Write(trace.Bytes())
}

func (c *canary) search(secrets ...[]byte) {
	t := c.t
	found := map[string][]byte{"what was printed": c.said.Bytes()}
	for _, root := range []string{c.home, c.temp} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				require.NotContains(t, d.Name(), "core")
				found[path], err = os.ReadFile(path)
			}
			return err
		}))
	}
	hits := 0
	for _, secret := range secrets {
		for form, text := range spellings(secret) {
			for where, content := range found {
				if n := bytes.Count(content, []byte(text)); n > 0 {
					hits += n
					at := bytes.Index(content, []byte(text))
					t.Errorf("%s in %s: %q", form, where, content[max(0, at-60):min(len(content), at+80)])
				}
			}
		}
	}
	require.GreaterOrEqual(t, c.failed, 100)
	t.Logf("%d calls, %d of them failed, %d bytes printed, %d files: %d hits", c.calls, c.failed,
		c.said.Len(), len(found)-1, hits)
}
