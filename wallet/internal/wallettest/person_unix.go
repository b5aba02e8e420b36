//go:build unix

package wallettest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"x402-wallet/wallet/internal/keystore/keytest"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// Person sits at a pty that is the controlling terminal of a helper process,
// whose stdin is another file: it is the terminal that has to be asked.
type Person struct {
	T      *testing.T
	cmd    *exec.Cmd
	pty    *os.File
	stdout bytes.Buffer
	mu     sync.Mutex
	screen bytes.Buffer
}

// SitDown starts the helper process.
func SitDown(t *testing.T, helper string) *Person {
	ours, theirs, err := pty.Open()
	require.NoError(t, err)
	p := &Person{T: t, cmd: keytest.Command(t, helper, ""), pty: ours}
	p.cmd.Stdin = strings.NewReader("the agent's words, not the person's\n")
	p.cmd.Stdout = &p.stdout
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	require.NoError(t, p.cmd.Start())
	require.NoError(t, theirs.Close())
	go func() {
		b := make([]byte, 1024)
		for {
			n, err := ours.Read(b)
			p.mu.Lock()
			p.screen.Write(b[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = ours.Close() })
	return p
}

func (p *Person) Sees() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.String()
}

// Answers waits for the words to be on the screen n times, then types.
func (p *Person) Answers(prompt string, n int, line string) {
	p.T.Helper()
	require.Eventually(p.T, func() bool {
		return strings.Count(p.Sees(), prompt) >= n
	}, time.Minute, time.Millisecond, "%q in %q", prompt, p.Sees())
	_, err := p.pty.WriteString(line)
	require.NoError(p.T, err)
}

// Got is what the helper printed to its stdout, and how it ended.
func (p *Person) Got() (string, error) {
	err := p.cmd.Wait()
	return p.stdout.String(), err
}
