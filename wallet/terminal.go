package wallet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// terminalTries is how often a new passphrase may be mistyped.
const terminalTries = 3

// FromTerminal asks the person at the controlling terminal (/dev/tty, CONIN$;
// never stdin, which may be the agent's) and shows nothing of what is typed.
// Without a terminal it has none. The caller vouches for the words of prompt.
func FromTerminal(prompt string) Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		return onTerminal(ctx, openTerminal, func(t *terminal) ([]byte, error) { return t.ask(prompt) })
	}
}

// FromTerminalTwice asks as [FromTerminal] for a new passphrase, checks it with [CheckPassphrase],
// and asks again for the same one. After three mistakes it gives up with SETUP_FAILED.
func FromTerminalTwice() Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		return onTerminal(ctx, openTerminal, func(t *terminal) ([]byte, error) {
			for range terminalTries {
				p, mistake, err := t.askTwice()
				if err != nil || mistake == "" {
					return p, err
				}
				if err := ctx.Err(); err != nil { // the caller is gone
					return nil, err
				}
				if _, err := t.out.WriteString(mistake + ".\n"); err != nil {
					return nil, err
				}
			}
			return nil, setup(fmt.Sprintf("no passphrase after %d tries", terminalTries), nil)
		})
	}
}

// terminal is both ends of the controlling terminal; on unix they are one file.
// openTerminal and hide are the system's.
type terminal struct {
	in, out *os.File
	typed   func() // called with each answer; nil: nobody wants to know
}

// onTerminal opens the terminal and turns its echo off, before the first prompt
// and until the last answer: who types ahead or pastes two lines sees neither.
// A read from a terminal cannot be interrupted. When ctx ends first, the echo is
// put back, and the reader waits for a line that the program's end overtakes.
func onTerminal(ctx context.Context, open func() (*terminal, error), dialogue func(*terminal) ([]byte,
	error)) ([]byte, error) {
	t, err := open()
	if why, isSaid := errors.AsType[*codedError](err); isSaid {
		return nil, why
	}
	if err != nil {
		return nil, ErrNoPassphrase
	}
	show, err := t.hide()
	if err != nil {
		t.close()
		return nil, ErrNoPassphrase
	}
	p, err := await(ctx, func() ([]byte, error) {
		defer t.close()
		defer show()
		return dialogue(t)
	})
	if ctx.Err() != nil {
		show()
	}
	return p, err
}

// askTwice returns the passphrase, or the mistake that was made.
func (t *terminal) askTwice() (p []byte, mistake string, err error) {
	p, err = t.ask(fmt.Sprintf("New passphrase (at least %d characters, not shown): ", minPassphrase))
	if err != nil {
		return nil, "", err
	}
	if err := CheckPassphrase(p); err != nil {
		clear(p)
		return nil, err.Error(), nil
	}
	again, err := t.ask("The same again: ")
	defer clear(again)
	if err == nil && bytes.Equal(p, again) {
		return p, "", nil
	}
	clear(p)
	return nil, "the two are not the same", err
}

// ask prints prompt and reads one line: a passphrase.
func (t *terminal) ask(prompt string) ([]byte, error) {
	p, err := t.line(prompt)
	if t.typed != nil {
		t.typed()
	}
	return p, err
}

// line prints prompt and reads one line.
func (t *terminal) line(prompt string) ([]byte, error) {
	if _, err := t.out.WriteString(prompt); err != nil {
		return nil, err
	}
	p, err := readLine(t.in)
	_, _ = t.out.WriteString("\n") // the person's own was not echoed
	return p, err
}

// readLine reads up to a line end, which it drops, into one buffer.
func readLine(r io.Reader) ([]byte, error) {
	data := make([]byte, 0, maxLine)
	var b [1]byte
	defer clear(b[:])
	for tooMuch := false; ; {
		n, err := r.Read(b[:])
		switch {
		case n == 1 && b[0] == '\n' && tooMuch:
			clear(data)
			return nil, passphraseTooLong()
		case n == 1 && b[0] == '\n':
			return bytes.TrimSuffix(data, []byte("\r")), nil
		case n == 1 && len(data) == cap(data):
			tooMuch = true
		case n == 1:
			data = append(data, b[0])
		case errors.Is(err, io.EOF):
			clear(data)
			return nil, locked("no passphrase was typed")
		case err != nil:
			clear(data)
			return nil, err
		}
	}
}

func (t *terminal) close() {
	_ = t.in.Close()
	if t.out != t.in {
		_ = t.out.Close()
	}
}

func (t *terminal) says(line string) error {
	_, err := t.out.WriteString(line + "\n")
	return err
}

// Terminals have a second screen, which leaves nothing behind in what can be scrolled back to.
const enterScreen, exitScreen = "\x1b[?1049h\x1b[2J\x1b[H", "\x1b[?1049l"

func (t *terminal) show(page []byte) error {
	if hasScreens {
		if _, err := t.out.WriteString(enterScreen); err != nil {
			return err
		}
	}
	_, err := t.out.Write(page)
	return err
}

func (t *terminal) leaveScreen() {
	if hasScreens {
		_, _ = t.out.WriteString(exitScreen)
	}
}

// hasScreens: Windows' console takes no such words unless it was asked to.
const hasScreens = runtime.GOOS != "windows"
