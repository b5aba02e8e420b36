package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
)

// The lab, the wallet and its MCP client, and the end of what a program wrote.
type (
	Lab           = testlab.Lab
	ConfigOptions = testlab.ConfigOptions
	EVMTransfer   = testlab.EVMTransfer
	Wallet        = testworld.Wallet
	WalletOptions = testworld.WalletOptions
	tail          = testworld.Tail
)

// Start gives the lab of this test process.
func Start(t testing.TB) *Lab { return testlab.Start(t) }

const protocolVersion = testworld.Protocol

const cliWait = 3 * time.Minute // scrypt takes most of it, and much longer on a busy machine

// withConfig puts another config.toml into the home, as its owner would with an editor, and seals
// it with `policy seal` at a terminal.
func withConfig(t testing.TB, h testworld.Home, bin, config string) {
	t.Helper()
	writePrivate(t, filepath.Join(h.Dir, "config.toml"), config)
	if seen, err := atTerminal(t, h, bin, testworld.Passphrase, "policy", "seal"); err != nil {
		t.Fatalf("x402-wallet policy seal: %v: %s", err, seen)
	}
}

// atTerminal runs a command before a person who types the passphrase when they are asked for it. It returns
// what they saw, and whether the command failed.
func atTerminal(t testing.TB, h testworld.Home, bin, passphrase string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliWait)
	defer cancel()
	cmd := h.Command(ctx, bin, args...)
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatalf("x402-wallet %s: %v", args[0], err)
	}
	defer terminal.Close()
	var seen []byte
	buffer := make([]byte, 4096)
	for typed := false; ; {
		n, err := terminal.Read(buffer)
		seen = append(seen, buffer[:n]...)
		if !typed && bytes.Contains(seen, []byte("Passphrase")) {
			typed = true
			_, _ = terminal.WriteString(passphrase + "\n")
		}
		if err != nil { // EIO: the program has ended
			break
		}
	}
	return string(seen), cmd.Wait()
}

// runWallet is endWallet with a command that must succeed.
func runWallet(t testing.TB, h testworld.Home, bin string, out any, args ...string) {
	t.Helper()
	endWallet(t, h, bin, 0, out, args...)
}

// endWallet runs a command that must end with this exit code, and decodes what it prints into out unless that
// is nil.
func endWallet(t testing.TB, h testworld.Home, bin string, code int, out any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliWait)
	defer cancel()
	cmd := h.Command(ctx, bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "x402-wallet %s: %v", args[0], err)
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "x402-wallet %s: %s%s", args[0], &stdout, &stderr)
	if out != nil {
		require.NoError(t, json.Unmarshal(stdout.Bytes(), out), "x402-wallet %s: %s", args[0], &stdout)
	}
}

func writePrivate(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	if runs := os.Getenv(behindEnv); runs != "" {
		if behind(runs) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if url := os.Getenv(passOnEnv); url != "" {
		if passOn(url, os.Args[len(os.Args)-1]) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	testlab.Stop()
	testworld.RemoveBuild()
	closeShops()
	os.Exit(code)
}
