package testworld

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

const commandWait = 3 * time.Minute // scrypt takes most of it, and much longer on a busy machine

// Run runs a command that must end with this exit code, and decodes what it prints into out unless that is
// nil.
func (h Home) Run(t testing.TB, bin string, code int, out any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandWait)
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

// AtTerminal runs a command before a person who types the passphrase when they are asked for it. It returns
// what they saw, and whether the command failed.
func (h Home) AtTerminal(t testing.TB, bin, passphrase string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandWait)
	defer cancel()
	cmd := h.Command(ctx, bin, args...)
	terminal, err := pty.Start(cmd)
	require.NoError(t, err, args[0])
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

// Build gives the path of the real wallet binary, built once per test process, or that of
// X402_WALLET_BIN.
func Build(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("X402_WALLET_BIN"); bin != "" {
		return bin
	}
	bin, err := build()
	require.NoError(t, err)
	return bin
}

var built string // its directory

var build = sync.OnceValues(func() (bin string, err error) {
	built, err = os.MkdirTemp("", "x402-wallet-e2e-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a cold cache, a busy machine
	defer cancel()
	bin = filepath.Join(built, "x402-wallet")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "x402-wallet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the wallet: %w\n%s", err, said)
	}
	return bin, nil
})

// RemoveBuild removes what Build built; for the TestMain of packages that call it.
func RemoveBuild() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}
