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

	"x402-wallet/e2e/testworld"
)

const cliWait = time.Minute // scrypt takes most of it

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

// runWallet runs a command that must succeed, and decodes what it prints into out unless that is
// nil.
func runWallet(t testing.TB, h testworld.Home, bin string, out any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliWait)
	defer cancel()
	cmd := h.Command(ctx, bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("x402-wallet %s: %v\n%s%s", args[0], err, &stdout, &stderr)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		t.Fatalf("x402-wallet %s: %v in %q", args[0], err, &stdout)
	}
}

func writePrivate(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
