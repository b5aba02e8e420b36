package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo checks itself; here it is checked that it fits a plain terminal and leaves the person's
// own wallet alone.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and takes seconds")
	}
	t.Parallel()
	program := filepath.Join(t.TempDir(), "x402-wallet")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	build := exec.Command("go", "build", "-o", program, "..")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	built, err := build.CombinedOutput()
	require.NoError(t, err, string(built))

	home := filepath.Join(t.TempDir(), "own")
	run := exec.CommandContext(t.Context(), program, "demo")
	run.Env = append(run.Environ(), "PATH="+filepath.Dir(program), "X402_WALLET_HOME="+home,
		"SOLANA_RPC_URL=https://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1")
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoDirExists(t, home)
	for line := range strings.Lines(string(out)) {
		require.LessOrEqual(t, len(line), 101, line)
		require.Equal(t, -1, strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool {
			return r < ' ' || r > '~'
		}), "%q", line)
	}
	for _, said := range []string{"Everything worked", "AMOUNT_EXCEEDS_MAX", "BUDGET_EXCEEDED",
		"DELEGATION_EXHAUSTED", "Pay $0.50 to ", "x402-wallet install claude-code "} {
		t.Run(said, func(t *testing.T) { require.Contains(t, string(out), said) })
	}
}

// A reader that does not read costs the oldest lines, and never a payment's time.
func TestLineQueueDropsTheOldest(t *testing.T) {
	q := newLineQueue(3)
	for i := range 10 {
		q.add(fmt.Appendf(nil, "%d\n", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is there is still written
	var out bytes.Buffer
	require.NoError(t, q.writeTo(ctx, &out))
	require.Equal(t, "{\"event\":\"dropped\",\"lines\":7}\n7\n8\n9\n", out.String())
	out.Reset()
	require.NoError(t, q.writeTo(ctx, &out))
	require.Empty(t, out.String())
}

// Lines are written as they come, and a reader that went away ends it.
func TestLineQueueWrites(t *testing.T) {
	q := newLineQueue(3)
	written, ended := make(chan string), make(chan error)
	gone := errors.New("nobody reads")
	go func() {
		ended <- q.writeTo(t.Context(), writes(func(p []byte) error {
			if string(p) == "last" {
				return gone
			}
			written <- string(p)
			return nil
		}))
	}()
	for _, line := range []string{"a", "b"} {
		q.add([]byte(line))
		require.Equal(t, line, <-written)
	}
	q.add([]byte("last"))
	require.ErrorIs(t, <-ended, gone)
}

type writes func(p []byte) error

func (w writes) Write(p []byte) (int, error) { return len(p), w(p) }
