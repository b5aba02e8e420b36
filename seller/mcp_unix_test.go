//go:build unix

package seller

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child/childtest"
	"x402-wallet/x402"
)

type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A command that neither speaks nor ends when it is told to is ended all the same, with all that it
// started, and in time.
func TestAnMCPCommandIsEndedWithAllItStarted(t *testing.T) {
	t.Parallel()
	said := &logged{}
	m := New(Options{Log: slog.New(slog.NewTextHandler(said, nil)),
		Servers: map[string]Server{
			"stubborn": {Command: []string{"/bin/sh", "-c",
				`trap "" TERM; sleep 600 & echo "pid $$ pid $!" >&2; while :; do sleep 600; done`}},
		}})
	done := make(chan error, 1)
	go func() {
		_, err := m.Tools(context.Background(), "mcp://stubborn")
		done <- err
	}()
	pids := regexp.MustCompile(`pid (\d+) pid (\d+)`)
	require.Eventually(t, func() bool {
		return pids.MatchString(said.String())
	}, time.Minute, 5*time.Millisecond)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Tools(ctx, "mcp://stubborn")
	require.Equal(t, x402.Timeout, code(err), "another call's opening is awaited until the caller's deadline")

	began := time.Now()
	_ = m.Close()
	require.Less(t, time.Since(began), closeTimeout+time.Minute, "the program sleeps for ten")
	require.Error(t, <-done)
	for _, pid := range pids.FindStringSubmatch(said.String())[1:] {
		childtest.WaitGone(t, pid)
	}
}
