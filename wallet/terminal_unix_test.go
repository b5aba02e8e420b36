//go:build unix

package wallet

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// person sits at a pty that is the controlling terminal of a helper process,
// whose stdin is another file: it is the terminal that has to be asked.
type person struct {
	t      *testing.T
	cmd    *exec.Cmd
	pty    *os.File
	stdout bytes.Buffer
	mu     sync.Mutex
	screen bytes.Buffer
}

func sitDown(t *testing.T, helper string) *person {
	ours, theirs, err := pty.Open()
	require.NoError(t, err)
	p := &person{t: t, cmd: helperCommand(t, helper, ""), pty: ours}
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

func (p *person) sees() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.String()
}

// waits for the words to be on the screen n times, then types.
func (p *person) answers(prompt string, n int, line string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		return strings.Count(p.sees(), prompt) >= n
	}, time.Minute, time.Millisecond, "%q in %q", prompt, p.sees())
	_, err := p.pty.WriteString(line)
	require.NoError(p.t, err)
}

// got is what the helper printed to its stdout, and how it ended.
func (p *person) got() (string, error) {
	err := p.cmd.Wait()
	return p.stdout.String(), err
}

func TestTerminal(t *testing.T) {
	p := sitDown(t, "terminal")
	p.answers("Passphrase: ", 1, testPassphrase+"\n")
	out, err := p.got()
	require.NoError(t, err, out)
	require.Equal(t, hex.EncodeToString([]byte(testPassphrase)), out)
	require.NotContains(t, p.sees(), "horse", "nothing is echoed")
}

const (
	asked = "not shown): "
	again = "The same again: "
)

// exchange is a question, how often it has been asked by then, and what is typed.
type exchange struct {
	question string
	times    int
	typed    string
}

func TestTerminalTwice(t *testing.T) {
	for name, c := range map[string]struct {
		exchanges []exchange
		says      []string
	}{
		"at once": {[]exchange{{asked, 1, testPassphrase}, {again, 1, testPassphrase}},
			[]string{"at least 12 characters"}},
		"both lines pasted at once": {[]exchange{{asked, 1, testPassphrase + "\n" + testPassphrase}}, nil},
		"after mistakes": {[]exchange{{asked, 1, "short"}, {asked, 2, testPassphrase},
			{again, 1, testPassphrase + "!"}, {asked, 3, testPassphrase}, {again, 2, testPassphrase}},
			[]string{"has 5 characters, at least 12 are needed.", "the two are not the same."}},
	} {
		t.Run(name, func(t *testing.T) {
			p := sitDown(t, "terminal-twice")
			for _, e := range c.exchanges {
				p.answers(e.question, e.times, e.typed+"\n")
			}
			out, err := p.got()
			require.NoError(t, err, out)
			require.Equal(t, hex.EncodeToString([]byte(testPassphrase)), out)
			for _, said := range c.says {
				require.Contains(t, p.sees(), said)
			}
			require.NotContains(t, p.sees(), "horse", "nothing is echoed")
		})
	}
}

func TestTerminalThreeMistakes(t *testing.T) {
	p := sitDown(t, "terminal-twice")
	for i := range 3 {
		p.answers(asked, i+1, testPassphrase+"\n")
		p.answers(again, i+1, "another passphrase\n")
	}
	out, err := p.got()
	require.Error(t, err)
	require.Contains(t, out, "SETUP_FAILED no passphrase after 3 tries")
}

func TestTerminalEndOfInput(t *testing.T) {
	p := sitDown(t, "terminal")
	p.answers("Passphrase: ", 1, "\x04")
	out, err := p.got()
	require.Error(t, err)
	require.Contains(t, out, "WALLET_LOCKED no passphrase was typed")
}

func TestNoTerminal(t *testing.T) {
	cmd := helperCommand(t, "terminal", "")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin = strings.NewReader(testPassphrase + "\n")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, ErrNoPassphrase.Error(), string(out))
}

// Cancelled while it waits, the terminal has its echo back.
func TestTerminalCancelled(t *testing.T) {
	ours, theirs, err := pty.Open()
	require.NoError(t, err)
	defer ours.Close()
	keep := &terminal{in: theirs, out: theirs} // the mode is the device's
	before, err := termios(keep)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	prompted := make(chan struct{})
	open := func() (*terminal, error) {
		f, err := os.OpenFile(theirs.Name(), os.O_RDWR|syscall.O_NOCTTY, 0)
		return &terminal{in: f, out: f}, err
	}
	done := make(chan error)
	go func() {
		_, err := onTerminal(ctx, open, func(t *terminal) ([]byte, error) {
			close(prompted)
			return t.ask("? ")
		})
		done <- err
	}()
	<-prompted
	hidden, err := termios(keep)
	require.NoError(t, err)
	require.NotEqual(t, before, hidden)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	after, err := termios(keep)
	require.NoError(t, err)
	require.Equal(t, before, after)
	_, _ = ours.WriteString("\n") // lets the reader go
}

func termios(t *terminal) (mode unix.Termios, err error) {
	err = t.control(func(fd int) error {
		got, err := unix.IoctlGetTermios(fd, getTermios)
		if err == nil {
			mode = *got
		}
		return err
	})
	return mode, err
}
