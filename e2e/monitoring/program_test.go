// Package monitoring tries the metrics with a real Prometheus: what docs/monitoring has for it, on a service,
// a paywall and dashboards that are the real program, in a world of play money.
package monitoring

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// patience is how long is waited for what comes in a moment on a machine with nothing else to do.
const patience = 2 * time.Minute

type program struct {
	t   *testing.T
	cmd *exec.Cmd

	mu   sync.Mutex
	said bytes.Buffer
}

func (p *program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.WaitDelay = 10 * time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd.Args[:2], p.text())
		}
	})
	return p
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// says waits for what it says, and gives the expression's group.
func (p *program) says(pattern string) string {
	expression := regexp.MustCompile(pattern)
	var found []string
	until(p.t, pattern, func() bool {
		found = expression.FindStringSubmatch(p.text())
		return found != nil
	})
	return found[1]
}

func until(t *testing.T, what string, is func() bool) {
	const every = 50 * time.Millisecond
	for end := time.Now().Add(patience); !is(); time.Sleep(every) {
		require.True(t, time.Now().Before(end), "waited in vain for %s", what)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}
