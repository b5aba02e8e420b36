//go:build unix

package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// handedOver has this process, which has no terminal, asked at one that was handed over.
func handedOver(t *testing.T, ask func() error) (person, tty *os.File, typed *int) {
	t.Helper()
	person, tty, err := pty.Open()
	require.NoError(t, err)
	typed = new(int)
	(&Handed{Terminal: tty, Ask: ask, Typed: func() { *typed++ }}).Use()
	t.Cleanup(func() { handed.Store(nil); _ = person.Close(); _ = tty.Close() })
	return person, tty, typed
}

func shows(t *testing.T, tty *os.File) bool {
	t.Helper()
	is := must.Get(unix.IoctlGetTermios(int(tty.Fd()), getTermios))(t)
	return is.Lflag&unix.ECHO != 0
}

func TestATerminalThatWasHandedOver(t *testing.T) {
	asked := 0
	person, tty, typed := handedOver(t, func() error { asked++; return nil })
	for n := 1; n <= 2; n++ { // it stays open
		require.Equal(t, n-1, asked)
		answer := make(chan []byte)
		go func() {
			p, _ := Ask("Passphrase: ")(context.Background())
			answer <- p
		}()
		prompt := make([]byte, len("Passphrase: "))
		must.Get(io.ReadFull(person, prompt))(t)
		require.Equal(t, "Passphrase: ", string(prompt))
		require.False(t, shows(t, tty))
		require.Equal(t, n-1, *typed)
		must.Get(person.WriteString(keytest.Passphrase + "\n"))(t)
		require.Equal(t, keytest.Passphrase, string(<-answer))
		require.True(t, shows(t, tty))
		require.Equal(t, []int{n, n}, []int{asked, *typed})
		must.Get(io.ReadFull(person, prompt[:2]))(t) // the line's end
	}
}

// Nobody is asked where that was refused, nor where no terminal came.
func TestNobodyIsAskedAtATerminal(t *testing.T) {
	_, tty, typed := handedOver(t, func() error { return errors.New("too many were wrong") })
	_, err := Ask("Passphrase: ")(t.Context())
	require.ErrorIs(t, err, coded.WalletLocked)
	require.ErrorContains(t, err, "too many were wrong")
	require.True(t, shows(t, tty))
	require.Zero(t, *typed)

	(&Handed{Ask: func() error { panic("nobody is there") }}).Use()
	require.ErrorIs(t, must.Err(AskTwice()(t.Context())), wallet.ErrNoPassphrase)
}
