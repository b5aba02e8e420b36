//go:build unix

package terminal

import (
	"context"
	"encoding/hex"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/wallettest"
)

func TestTerminal(t *testing.T) {
	p := wallettest.SitDown(t, "terminal")
	p.Answers("Passphrase: ", 1, keytest.Passphrase+"\n")
	out, err := p.Got()
	require.NoError(t, err, out)
	require.Equal(t, hex.EncodeToString([]byte(keytest.Passphrase)), out)
	require.NotContains(t, p.Sees(), "horse", "nothing is echoed")
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
		"at once": {[]exchange{{asked, 1, keytest.Passphrase}, {again, 1, keytest.Passphrase}},
			[]string{"at least 12 characters"}},
		"both lines pasted at once": {[]exchange{{asked, 1, keytest.Passphrase + "\n" +
			keytest.Passphrase}}, nil},
		"after mistakes": {[]exchange{{asked, 1, "short"}, {asked, 2, keytest.Passphrase},
			{again, 1, keytest.Passphrase + "!"}, {asked, 3, keytest.Passphrase}, {again, 2,
				keytest.Passphrase}},
			[]string{"has 5 characters, at least 12 are needed.", "the two are not the same."}},
	} {
		t.Run(name, func(t *testing.T) {
			p := wallettest.SitDown(t, "terminal-twice")
			for _, e := range c.exchanges {
				p.Answers(e.question, e.times, e.typed+"\n")
			}
			out, err := p.Got()
			require.NoError(t, err, out)
			require.Equal(t, hex.EncodeToString([]byte(keytest.Passphrase)), out)
			for _, said := range c.says {
				require.Contains(t, p.Sees(), said)
			}
			require.NotContains(t, p.Sees(), "horse", "nothing is echoed")
		})
	}
}

func TestTerminalThreeMistakes(t *testing.T) {
	p := wallettest.SitDown(t, "terminal-twice")
	for i := range 3 {
		p.Answers(asked, i+1, keytest.Passphrase+"\n")
		p.Answers(again, i+1, "another passphrase\n")
	}
	out, err := p.Got()
	require.Error(t, err)
	require.Contains(t, out, "SETUP_FAILED no passphrase after 3 tries")
}

func TestTerminalEndOfInput(t *testing.T) {
	p := wallettest.SitDown(t, "terminal")
	p.Answers("Passphrase: ", 1, "\x04")
	out, err := p.Got()
	require.Error(t, err)
	require.Contains(t, out, "WALLET_LOCKED no passphrase was typed")
}

func TestNoTerminal(t *testing.T) {
	cmd := keytest.Command(t, "terminal", "")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin = strings.NewReader(keytest.Passphrase + "\n")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, wallet.ErrNoPassphrase.Error(), string(out))
}

// Cancelled while it waits, the terminal has its echo back.
func TestTerminalCancelled(t *testing.T) {
	ours, theirs, err := pty.Open()
	require.NoError(t, err)
	defer ours.Close()
	keep := &Terminal{in: theirs, Out: theirs} // the mode is the device's
	before := must.Get(termios(keep))(t)

	ctx, cancel := context.WithCancel(t.Context())
	prompted := make(chan struct{})
	open := func() (*Terminal, error) {
		f, err := os.OpenFile(theirs.Name(), os.O_RDWR|syscall.O_NOCTTY, 0)
		return &Terminal{in: f, Out: f}, err
	}
	done := make(chan error)
	go func() {
		_, err := On(ctx, open, func(t *Terminal) ([]byte, error) {
			close(prompted)
			return t.Ask("? ")
		})
		done <- err
	}()
	<-prompted
	require.NotEqual(t, before, must.Get(termios(keep))(t))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, before, must.Get(termios(keep))(t))
	_, _ = ours.WriteString("\n") // lets the reader go
}

func termios(t *Terminal) (mode unix.Termios, err error) {
	err = t.control(func(fd int) error {
		got, err := unix.IoctlGetTermios(fd, getTermios)
		if err == nil {
			mode = *got
		}
		return err
	})
	return mode, err
}
