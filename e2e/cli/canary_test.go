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
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
)

const canaryPassphrase = "canary-7f3a sings in the mine"

// spellings are the forms a secret could be found in.
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

// A hundred calls that fail, at the most talkative, leave nothing of the passphrase or the keys in
// what is printed, in the home, in the temporary directory, or in what is left of a process that
// was aborted (issue 4; catalogue F10, F12).
func TestNoCallLeavesATraceOfASecret(t *testing.T) {
	t.Parallel()
	w, err := newWorld(sandbox.Options{})
	require.NoError(t, err)
	t.Cleanup(w.close)
	dir := t.TempDir()
	home, temp, secrets := filepath.Join(dir, "home"), filepath.Join(dir, "temp"),
		filepath.Join(dir, "secrets")
	require.NoError(t, os.Mkdir(temp, 0o700))
	require.NoError(t, os.Mkdir(secrets, 0o700))
	file := func(name, text string) string {
		path := filepath.Join(secrets, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	evm := bytes.Repeat([]byte{0xc7, 0x1e, 0x5a, 0x93}, 8)
	pair := solana.NewWallet().PrivateKey
	right, wrong := file("right", canaryPassphrase+"\n"), file("wrong", canaryPassphrase+"!\n")
	evmKey, solanaKey := file("evm", hex.EncodeToString(evm)), file("solana", pair.String())
	program, err := exec.LookPath("x402-wallet")
	require.NoError(t, err)

	var said bytes.Buffer
	calls, failed := 0, 0
	run := func(stdin string, env []string, args ...string) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append([]string{"HOME=" + temp, "TMPDIR=" + temp, "X402_WALLET_HOME=" + home,
			"LOG_LEVEL=debug", "PATH=" + os.Getenv("PATH"),
			programVariable + "=" + os.Getenv(programVariable)}, env...)
		cmd.Dir, cmd.Stdin = temp, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		said.Write(out)
		calls++
		if err != nil {
			failed++
		}
	}
	ok := func(args ...string) {
		before := failed
		run("", nil, args...)
		require.Equal(t, before, failed, "%v: %s", args, &said)
	}
	var imported []wallet.Imported
	for chain, path := range map[string]string{wallet.ChainEVM: evmKey, wallet.ChainSolana: solanaKey} {
		key, err := wallet.ImportKeyFile(path, chain)
		require.NoError(t, err)
		imported = append(imported, key)
	}
	address, _, err := testworld.MakeHome(home, w.rules(sandbox.Rules{}), canaryPassphrase, imported...)
	require.NoError(t, err)

	tool := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + arguments + "}\n"
	}
	page := w.SellerURL + "/weather"
	for failed < 100 {
		before := failed
		run("", nil, "init", "--passphrase-file", right, "--import-key-file", evmKey)
		run("", []string{"X402_WALLET_HOME=" + home + "2"}, "init", "--passphrase-file", right,
			"--import-key-file", file("broken", hex.EncodeToString(evm)+"z"))
		run("", []string{"X402_WALLET_HOME=" + home + "2"}, "init", "--passphrase-file", right,
			"--import-solana", solanaKey)
		run("", []string{"X402_WALLET_HOME=" + home + "2"}, "init", "--passphrase-file", right,
			"--import-evm", evmKey)
		run("", []string{"X402_WALLET_PASSPHRASE_FILE=" + wrong}, "pay", page)
		run("", []string{"X402_WALLET_PASSPHRASE=" + canaryPassphrase + "!"}, "pay", page)
		run("", []string{"X402_WALLET_PASSPHRASE_FILE=" + right}, "pay", page) // no funds
		run("", nil, "pay", page)
		run("", nil, "pay", "--passphrase="+canaryPassphrase, page)
		run("", nil, "pay", "--passphrase-fd="+canaryPassphrase, page)
		run("", nil, "unlock", "--passphrase-fd", canaryPassphrase)
		run("", nil, "unlock", canaryPassphrase)
		run("", nil, "passphrase", canaryPassphrase, canaryPassphrase)
		run("", nil, "unlock", "--passphrase-file", wrong)
		run("", nil, "passphrase", "--passphrase-file", wrong, "--new-passphrase-file", right)
		run("", nil, "passphrase", "--passphrase-file", right, "--new-passphrase-file",
			file("weak", canaryPassphrase[:8]))
		run("", nil, "passphrase", "--keyring", "--passphrase-file", wrong)
		run("", nil, "session", "new")
		// an answer that is an error, though the program ends well
		run(tool(`{"name":"x402_pay","arguments":{"url":"`+page+`","passphrase":"`+canaryPassphrase+`"}}`),
			[]string{"X402_WALLET_PASSPHRASE_FILE=" + right}, "mcp")
		run(tool(`{"name":"x402_pay","arguments":{"url":"`+page+`"}}`),
			[]string{"X402_WALLET_PASSPHRASE_FILE=" + wrong}, "mcp")
		require.Greater(t, failed, before)
	}

	// an unlocked process that is aborted: its trace of stacks, and no core
	w.Fund(address, sandbox.USDC)
	aborted := exec.CommandContext(t.Context(), program, "unlock", "--foreground", "--passphrase-file", right)
	aborted.Env = []string{"HOME=" + temp, "TMPDIR=" + temp, "X402_WALLET_HOME=" + home, "LOG_LEVEL=debug",
		"GOTRACEBACK=crash", programVariable + "=" + os.Getenv(programVariable)}
	aborted.Dir = temp
	var trace bytes.Buffer
	aborted.Stderr = &trace
	require.NoError(t, aborted.Start())
	socket := filepath.Join(home, "agent.sock")
	require.Eventually(t, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	ok("pay", page) // it has signed
	require.NoError(t, aborted.Process.Signal(syscall.SIGABRT))
	require.Error(t, aborted.Wait())
	require.Contains(t, trace.String(), "SIGABRT")
	said.Write(trace.Bytes())

	found := map[string][]byte{"what was printed": said.Bytes()}
	for _, root := range []string{home, temp} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				require.NotContains(t, d.Name(), "core")
				found[path], err = os.ReadFile(path)
			}
			return err
		}))
	}
	hits := 0
	for _, secret := range [][]byte{[]byte(canaryPassphrase), evm, pair[:32]} {
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
	require.GreaterOrEqual(t, failed, 100)
	t.Logf("%d calls, %d of them failed, %d bytes printed, %d files: %d hits", calls, failed, said.Len(),
		len(found)-1, hits)
}
