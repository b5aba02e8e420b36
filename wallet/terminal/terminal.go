// Package terminal asks the person at the controlling terminal for passphrases, and shows nothing of what is
// typed.
package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/owner"
)

// Tries is how often a new passphrase may be mistyped.
const Tries = 3

// Ask asks the person at the controlling terminal (/dev/tty, CONIN$;
// never stdin, which may be the agent's) and shows nothing of what is typed.
// Without a terminal it has none. The caller vouches for the words of prompt.
func Ask(prompt string) wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		return On(ctx, Open, func(t *Terminal) ([]byte, error) { return t.Ask(prompt) })
	}
}

// AskTwice asks as [Ask] for a new passphrase, checks it with owner.CheckPassphrase,
// and asks again for the same one. After three mistakes it gives up with SETUP_FAILED.
func AskTwice() wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		return On(ctx, Open, func(t *Terminal) ([]byte, error) {
			for range Tries {
				p, mistake, err := t.askTwice()
				if err != nil || mistake == "" {
					return p, err
				}
				if err := ctx.Err(); err != nil { // the caller is gone
					return nil, err
				}
				if _, err := t.Out.WriteString(mistake + ".\n"); err != nil {
					return nil, err
				}
			}
			return nil, coded.Setup(fmt.Sprintf("no passphrase after %d tries", Tries), nil)
		})
	}
}

// Terminal is both ends of the controlling terminal; on unix they are one file.
// Open and hide are the system's.
type Terminal struct {
	in, Out *os.File
	typed   func() // called with each answer; nil: nobody wants to know
}

// On opens the terminal and turns its echo off, before the first prompt
// and until the last answer: who types ahead or pastes two lines sees neither.
// A read from a terminal cannot be interrupted. When ctx ends first, the echo is
// put back, and the reader waits for a line that the program's end overtakes.
func On(ctx context.Context, open func() (*Terminal, error), dialogue func(*Terminal) ([]byte,
	error)) ([]byte, error) {
	t, err := open()
	if why, isSaid := errors.AsType[*coded.Error](err); isSaid {
		return nil, why
	}
	if err != nil {
		return nil, wallet.ErrNoPassphrase
	}
	show, err := t.hide()
	if err != nil {
		t.Close()
		return nil, wallet.ErrNoPassphrase
	}
	p, err := guarded.Await(ctx, func() ([]byte, error) {
		defer t.Close()
		defer show()
		return dialogue(t)
	})
	if ctx.Err() != nil {
		show()
	}
	return p, err
}

// askTwice returns the passphrase, or the mistake that was made.
func (t *Terminal) askTwice() (p []byte, mistake string, err error) {
	p, err = t.Ask(fmt.Sprintf("New passphrase (at least %d characters, not shown): ", owner.MinPassphrase))
	if err != nil {
		return nil, "", err
	}
	if err := owner.CheckPassphrase(p); err != nil {
		clear(p)
		return nil, err.Error(), nil
	}
	again, err := t.Ask("The same again: ")
	defer clear(again)
	if err == nil && bytes.Equal(p, again) {
		return p, "", nil
	}
	clear(p)
	return nil, "the two are not the same", err
}

// Ask prints prompt and reads one line: a passphrase.
func (t *Terminal) Ask(prompt string) ([]byte, error) {
	p, err := t.Line(prompt)
	if t.typed != nil {
		t.typed()
	}
	return p, err
}

// Line prints prompt and reads one line.
func (t *Terminal) Line(prompt string) ([]byte, error) {
	if _, err := t.Out.WriteString(prompt); err != nil {
		return nil, err
	}
	p, err := readLine(t.in)
	_, _ = t.Out.WriteString("\n") // the person's own was not echoed
	return p, err
}

// readLine reads up to a line end, which it drops, into one buffer.
func readLine(r io.Reader) ([]byte, error) {
	data := make([]byte, 0, wallet.MaxLine)
	var b [1]byte
	defer clear(b[:])
	for tooMuch := false; ; {
		n, err := r.Read(b[:])
		switch {
		case n == 1 && b[0] == '\n' && tooMuch:
			clear(data)
			return nil, wallet.PassphraseTooLong()
		case n == 1 && b[0] == '\n':
			return bytes.TrimSuffix(data, []byte("\r")), nil
		case n == 1 && len(data) == cap(data):
			tooMuch = true
		case n == 1:
			data = append(data, b[0])
		case errors.Is(err, io.EOF):
			clear(data)
			return nil, coded.Locked("no passphrase was typed")
		case err != nil:
			clear(data)
			return nil, err
		}
	}
}

func (t *Terminal) Close() {
	_ = t.in.Close()
	if t.Out != t.in {
		_ = t.Out.Close()
	}
}

func (t *Terminal) Says(line string) error {
	_, err := t.Out.WriteString(line + "\n")
	return err
}

// Terminals have a second screen, which leaves nothing behind in what can be scrolled back to.
const EnterScreen, ExitScreen = "\x1b[?1049h\x1b[2J\x1b[H", "\x1b[?1049l"

func (t *Terminal) Show(page []byte) error {
	if hasScreens {
		if _, err := t.Out.WriteString(EnterScreen); err != nil {
			return err
		}
	}
	_, err := t.Out.Write(page)
	return err
}

func (t *Terminal) LeaveScreen() {
	if hasScreens {
		_, _ = t.Out.WriteString(ExitScreen)
	}
}

// hasScreens: Windows' console takes no such words unless it was asked to.
const hasScreens = runtime.GOOS != "windows"
