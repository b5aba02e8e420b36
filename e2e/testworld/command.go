package testworld

import (
	"bytes"
	"context"
	"encoding/json"
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
