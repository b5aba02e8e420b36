package wallet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
)

const (
	// MinPassphrase is the least number of characters of a new passphrase,
	// counted after NFC normalisation.
	MinPassphrase = 12
	// MaxPassphrase is the most bytes of any passphrase: room for a long
	// sentence in any script, and far from what would make the KDF read files.
	MaxPassphrase = 1024

	MaxLine = MaxPassphrase + len("\r\n")
)

// Passphrase is one source of the passphrase. It returns the bytes as they were given, without the
// line's end; the caller owns and wipes them. It returns [ErrNoPassphrase] when the next source is
// to be asked; any other error ends the search, because a source the owner has set up and that
// fails should be seen to fail.
type Passphrase func(ctx context.Context) ([]byte, error)

// ErrNoPassphrase is what a [Passphrase] returns when it has none to give, so that the next one is
// asked. Any other error ends the search.
var ErrNoPassphrase = errors.New("no passphrase from this source")

// CheckPassphrase says whether p may protect a new wallet: one line of UTF-8
// text, at least [minPassphrase] characters after NFC normalisation, at most
// [maxPassphrase] bytes. The error is SETUP_FAILED and names the numbers.
func CheckPassphrase(p []byte) error {
	refuse := func(format string, args ...any) error {
		e := coded.Setup("the passphrase "+fmt.Sprintf(format, args...), nil)
		e.Advice = fmt.Sprintf("choose one of %d characters or more, such as five random words",
			MinPassphrase)
		return e
	}
	switch {
	case len(p) > MaxPassphrase:
		return refuse("is longer than %d bytes", MaxPassphrase)
	case !utf8.Valid(p):
		return refuse("is not UTF-8 text")
	case bytes.ContainsFunc(p, unicode.IsControl):
		return refuse("holds a line break or another control character")
	}
	normal := normalizeNFC(p)
	defer normal.Wipe()
	if n := utf8.RuneCount(normal.Bytes); n < MinPassphrase {
		return refuse("has %d characters, at least %d are needed", n, MinPassphrase)
	}
	return nil
}

// normalizeNFC copies p into locked memory in its NFC form, so that the same letters open the wallet
// whichever keyboard typed them. The caller wipes it.
func normalizeNFC(p []byte) *guarded.Memory {
	// NFC makes UTF-8 at most three times longer (UAX #15); growing the slice
	// would leave a copy behind.
	s := guarded.New(3*len(p) + utf8.UTFMax)
	s.Bytes = norm.NFC.Append(s.Bytes[:0], p...)
	return s
}

// failedHarden is why this process is open to others, where Harden was called and failed.
var failedHarden atomic.Pointer[error]

func notHardened(err error) error {
	failedHarden.Store(&err)
	return err
}

// AskPassphrase goes through the sources. It returns the passphrase as it was given.
func AskPassphrase(ctx context.Context, sources []Passphrase) ([]byte, error) {
	if failed := failedHarden.Load(); failed != nil {
		e := coded.Locked("other programs could read the passphrase out of this process, so it takes none")
		e.Advice, e.Cause = "run it where prctl(2) and setrlimit(2) are allowed", *failed
		return nil, e
	}
	for _, source := range sources {
		p, err := source(ctx)
		if errors.Is(err, ErrNoPassphrase) {
			continue
		}
		var known *coded.Error
		switch {
		case err == nil && len(p) > MaxPassphrase:
			clear(p)
			return nil, PassphraseTooLong()
		case err == nil && len(p) > 0:
			return p, nil
		case err == nil:
			return nil, coded.Locked("the passphrase that was given is empty")
		case errors.As(err, &known):
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		e := coded.Locked("the passphrase could not be had")
		e.Cause = err
		return nil, e
	}
	return nil, coded.Locked("the wallet is locked, and no passphrase is at hand")
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

func PassphraseTooLong() *coded.Error {
	return &coded.Error{As: coded.InvalidPassphrase,
		Msg:    fmt.Sprintf("the passphrase is longer than %d bytes", MaxPassphrase),
		Advice: "check that the right file, descriptor or command is named"}
}

// AskFor asks one source for what is no passphrase of this wallet.
func AskFor(ctx context.Context, what string, source Passphrase) ([]byte, error) {
	given, err := AskPassphrase(ctx, []Passphrase{func(ctx context.Context) ([]byte, error) {
		given, err := source(ctx)
		if errors.Is(err, ErrNoPassphrase) {
			err = coded.Locked("there is no terminal to type it on")
		}
		return given, err
	}})
	if errors.Is(err, coded.WalletLocked) || errors.Is(err, coded.InvalidPassphrase) {
		e := coded.Setup("get "+what, err)
		e.Advice = "run it in a terminal, or name an owner-only file or an open descriptor"
		return nil, e
	}
	return given, err
}
