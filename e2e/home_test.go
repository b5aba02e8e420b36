package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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

func atTerminal(t testing.TB, h testworld.Home, bin, passphrase string, args ...string) (string, error) {
	t.Helper()
	return h.AtTerminal(t, bin, passphrase, args...)
}

// runWallet is endWallet with a command that must succeed.
func runWallet(t testing.TB, h testworld.Home, bin string, out any, args ...string) {
	t.Helper()
	h.Run(t, bin, 0, out, args...)
}

func endWallet(t testing.TB, h testworld.Home, bin string, code int, out any, args ...string) {
	t.Helper()
	h.Run(t, bin, code, out, args...)
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
