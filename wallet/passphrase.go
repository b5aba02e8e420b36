package wallet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"x402-wallet/wallet/internal/coded"
)

const (
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
