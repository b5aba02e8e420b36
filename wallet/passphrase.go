package wallet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/zalando/go-keyring"
	"golang.org/x/text/unicode/norm"
)

const (
	// minPassphrase is the least number of characters of a new passphrase,
	// counted after NFC normalisation.
	minPassphrase = 12
	// maxPassphrase is the most bytes of any passphrase: room for a long
	// sentence in any script, and far from what would make the KDF read files.
	maxPassphrase = 1024

	maxLine = maxPassphrase + len("\r\n")

	// commandTimeout is how long a passphrase command may take: a person may have
	// to touch a fingerprint reader.
	commandTimeout = time.Minute
	// commandWaitDelay is for children that a command left behind with its output.
	commandWaitDelay = time.Second

	keyringService = "x402-wallet"
	// keyringTimeout is how long the system's keyring may take. D-Bus can hang for
	// ever, and a locked keyring asks its owner on the screen: who answers later
	// has unlocked it for the next try.
	keyringTimeout = 20 * time.Second
)

// Passphrase is one source of the passphrase. It returns the bytes as they were given, without the
// line's end; the caller owns and wipes them. It returns [ErrNoPassphrase] when the next source is
// to be asked; any other error ends the search, because a source the owner has set up and that
// fails should be seen to fail.
type Passphrase func(ctx context.Context) ([]byte, error)

// CheckPassphrase says whether p may protect a new wallet: one line of UTF-8
// text, at least [minPassphrase] characters after NFC normalisation, at most
// [maxPassphrase] bytes. The error is SETUP_FAILED and names the numbers.
func CheckPassphrase(p []byte) error {
	refuse := func(format string, args ...any) error {
		e := setup("the passphrase "+fmt.Sprintf(format, args...), nil)
		e.hint = fmt.Sprintf("choose one of %d characters or more, such as five random words", minPassphrase)
		return e
	}
	switch {
	case len(p) > maxPassphrase:
		return refuse("is longer than %d bytes", maxPassphrase)
	case !utf8.Valid(p):
		return refuse("is not UTF-8 text")
	case bytes.ContainsFunc(p, unicode.IsControl):
		return refuse("holds a line break or another control character")
	}
	normal := normalizeNFC(p)
	defer normal.wipe()
	if n := utf8.RuneCount(normal.bytes); n < minPassphrase {
		return refuse("has %d characters, at least %d are needed", n, minPassphrase)
	}
	return nil
}

// normalizeNFC copies p into locked memory in its NFC form, so that the same letters open the wallet
// whichever keyboard typed them. The caller wipes it.
func normalizeNFC(p []byte) *secret {
	// NFC makes UTF-8 at most three times longer (UAX #15); growing the slice
	// would leave a copy behind.
	s := newSecret(3*len(p) + utf8.UTFMax)
	s.bytes = norm.NFC.Append(s.bytes[:0], p...)
	return s
}

// failedHarden is why this process is open to others, where Harden was called and failed.
var failedHarden atomic.Pointer[error]

func notHardened(err error) error {
	failedHarden.Store(&err)
	return err
}

// askPassphrase goes through the sources. It returns the passphrase as it was given.
func askPassphrase(ctx context.Context, sources []Passphrase) ([]byte, error) {
	if failed := failedHarden.Load(); failed != nil {
		e := locked("other programs could read the passphrase out of this process, so it takes none")
		e.hint, e.err = "run it where prctl(2) and setrlimit(2) are allowed", *failed
		return nil, e
	}
	for _, source := range sources {
		p, err := source(ctx)
		if errors.Is(err, ErrNoPassphrase) {
			continue
		}
		var known *codedError
		switch {
		case err == nil && len(p) > maxPassphrase:
			clear(p)
			return nil, passphraseTooLong()
		case err == nil && len(p) > 0:
			return p, nil
		case err == nil:
			return nil, locked("the passphrase that was given is empty")
		case errors.As(err, &known):
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		e := locked("the passphrase could not be had")
		e.err = err
		return nil, e
	}
	return nil, locked("the wallet is locked, and no passphrase is at hand")
}

// FromValue is the passphrase in a string, such as an environment variable that
// config read; empty is none. A string cannot be wiped: prefer a file.
func FromValue(value string) Passphrase {
	return func(context.Context) ([]byte, error) {
		if value == "" {
			return nil, ErrNoPassphrase
		}
		return []byte(value), nil
	}
}

// FromFile is the content of a file without one line end. Only its owner may be
// able to read it, as with the keystore: KEYSTORE_PERMISSIONS otherwise.
func FromFile(path string) Passphrase { return fromFile(path, checkOwner) }

// FromCredential is FromFile for a file in systemd's directory of a service's credentials, which it keeps
// from everybody else.
func FromCredential(path string) Passphrase { return fromFile(path, checkCredential) }

func fromFile(path string, isOurs func(path string, info fs.FileInfo) error) Passphrase {
	return func(context.Context) ([]byte, error) {
		data, err := readPlain(path, maxLine, isOurs)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, &codedError{code: codeLocked, msg: "there is no passphrase file " + path,
				hint: "check --passphrase-file, X402_WALLET_PASSPHRASE_FILE or keystore.passphrase_file; " +
					"it takes the full path, without ~"}
		case errors.Is(err, errTooLarge):
			return nil, passphraseTooLong()
		case err != nil:
			return nil, err
		}
		return trimLine(data), nil
	}
}

// FromFD is what can be read from an open descriptor (`--passphrase-fd N`) until
// its end, without one line end. It can be read once; later it has none, so a
// wallet that locked itself stays locked. 1 and 2 are refused.
func FromFD(fd int) Passphrase {
	var used atomic.Bool
	return func(ctx context.Context) ([]byte, error) {
		if fd < 0 || fd == 1 || fd == 2 {
			return nil, locked(fmt.Sprintf("descriptor %d cannot carry a passphrase", fd))
		}
		if used.Swap(true) {
			return nil, ErrNoPassphrase
		}
		return await(ctx, func() ([]byte, error) {
			f := os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", fd))
			if f == nil {
				return nil, fs.ErrInvalid
			}
			defer f.Close()
			data, err := readAll(f, maxLine)
			if errors.Is(err, errTooLarge) {
				return nil, passphraseTooLong()
			}
			return trimLine(data), err
		})
	}
}

// FromCommand is what a command prints, without one line end: argv[0] is the
// program, by its full path, and there is no shell. env is all of its environment.
// It has a minute and [maxPassphrase] bytes; its standard error is dropped, for it
// might repeat the secret.
func FromCommand(argv, env []string) Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		if len(argv) == 0 {
			return nil, ErrNoPassphrase
		}
		if !filepath.IsAbs(argv[0]) {
			return nil, locked("the passphrase command " + argv[0] + " is not a full path")
		}
		limited, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		out := &line{data: make([]byte, 0, maxLine)}
		cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
		cmd.Env = append([]string{}, env...)
		cmd.WaitDelay = commandWaitDelay
		err := runInto(cmd, out)
		switch {
		case out.full:
			clear(out.data)
			return nil, passphraseTooLong()
		case err != nil:
			clear(out.data)
			return nil, commandFailed(ctx.Err(), limited.Err(), argv[0], err)
		}
		return trimLine(out.data), nil
	}
}

// commandFailed says which of three things went wrong: the call that needed the passphrase had no
// time left (caller), the command took longer than any may (limit), or it failed by itself. A call
// that was cancelled wants to know nothing.
func commandFailed(caller, limit error, program string, err error) error {
	if errors.Is(caller, context.Canceled) {
		return caller
	}
	e := locked("the passphrase command " + program + " failed")
	e.hint = "run it by hand to see why; it must print the passphrase and exit with 0 within " +
		commandTimeout.String() + ", with no variables but PATH, HOME, LANG and TMPDIR (to give it others, " +
		"let it begin with /usr/bin/env NAME=value)"
	e.err = errors.Join(limit, err)
	switch {
	case caller != nil:
		e.msg = "the passphrase command " + program + " had not answered when the call's time was over, " +
			"and was ended"
		e.hint = "run it by hand to see how long it takes: it has to answer within the call's deadline " +
			"(policy.deadline), and never may take longer than " + commandTimeout.String() + "; or unlock " +
			"before, with x402-wallet unlock"
		e.err = caller
	case limit != nil:
		e.msg = "the passphrase command " + program + " had not answered after " + commandTimeout.String() +
			", and was ended"
		e.err = limit
	}
	return e
}

// line takes what fits into its capacity and then fails, which ends the command.
type line struct {
	data []byte
	full bool
}

func (l *line) Write(p []byte) (int, error) {
	if len(p) > cap(l.data)-len(l.data) {
		l.full = true
		return 0, errTooLarge
	}
	l.data = append(l.data, p...)
	return len(p), nil
}

// await runs a read that cannot be interrupted. When ctx ends first, what comes later is wiped.
func await(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		data, err := read()
		done <- answer{data: data, err: err}
	}()
	select {
	case a := <-done:
		return a.data, a.err
	case <-ctx.Done():
		go func() { clear((<-done).data) }()
		return nil, ctx.Err()
	}
}

// trimLine drops one line end, \n or \r\n.
func trimLine(p []byte) []byte {
	if rest, ok := bytes.CutSuffix(p, []byte("\n")); ok {
		return bytes.TrimSuffix(rest, []byte("\r"))
	}
	return p
}

func passphraseTooLong() *codedError {
	return &codedError{code: codeInvalidPassphrase,
		msg:  fmt.Sprintf("the passphrase is longer than %d bytes", maxPassphrase),
		hint: "check that the right file, descriptor or command is named"}
}

// FromKeyring is the passphrase that [Wallet.KeepInKeyring] put into the system's keyring (Secret
// Service over D-Bus, macOS Keychain, Windows Credential Manager), where any program of the same
// user may read it. None there is none; a keyring that fails or hangs ends the search.
func (w *Wallet) FromKeyring() Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		given, err := w.askKeyring(ctx, "read the passphrase from", func() ([]byte, error) {
			text, err := keyring.Get(keyringService, w.header.evm)
			return []byte(text), err
		})
		if errors.Is(err, keyring.ErrNotFound) {
			return nil, ErrNoPassphrase
		}
		return given, err
	}
}

// KeepInKeyring puts the passphrase into the system's keyring, under the
// wallet's EVM address, after checking that it is the right one. Errors: those
// of [Wallet.confirm]; SETUP_FAILED when the keyring does not take it.
func (w *Wallet) KeepInKeyring(ctx context.Context, passphrase Passphrase) error {
	var given []byte
	defer func() { clear(given) }()
	err := w.confirm(ctx, func(ctx context.Context) (p []byte, err error) {
		p, err = passphrase(ctx)
		given = append(given, p...)
		return p, err
	})
	if err != nil {
		return err
	}
	text := string(given) // now: a caller that gives up waiting clears given
	_, err = w.askKeyring(ctx, "put the passphrase into", func() ([]byte, error) {
		return nil, keyring.Set(keyringService, w.header.evm, text)
	})
	if err != nil {
		return setup("keep the passphrase", err)
	}
	return nil
}

// ForgetKeyring takes the passphrase out of the system's keyring, and says whether it was there.
func (w *Wallet) ForgetKeyring(ctx context.Context) (was bool, err error) {
	_, err = w.askKeyring(ctx, "take the passphrase out of", func() ([]byte, error) {
		return nil, keyring.Delete(keyringService, w.header.evm)
	})
	if errors.Is(err, keyring.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (w *Wallet) askKeyring(ctx context.Context, what string, f func() ([]byte, error)) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, keyringTimeout)
	defer cancel()
	p, err := await(limited, f)
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, keyring.ErrNotFound):
		return p, err
	case limited.Err() != nil:
		err = fmt.Errorf("no answer within %v", keyringTimeout)
	}
	clear(p)
	return nil, &codedError{code: codeLocked, msg: "could not " + what + " the system's keyring", err: err,
		hint: "unlock the keyring, or set keyring = false under [keystore]"}
}
