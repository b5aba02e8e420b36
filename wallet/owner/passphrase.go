package owner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// MinPassphrase is the least number of characters of a new passphrase,
// counted after NFC normalisation.
const MinPassphrase = 12

// CheckPassphrase says whether p may protect a new wallet: one line of UTF-8
// text, at least [MinPassphrase] characters after NFC normalisation, at most
// [wallet.MaxPassphrase] bytes. The error is SETUP_FAILED and names the numbers.
func CheckPassphrase(p []byte) error {
	refuse := func(format string, args ...any) error {
		e := coded.Setup("the passphrase "+fmt.Sprintf(format, args...), nil)
		e.Advice = fmt.Sprintf("choose one of %d characters or more, such as five random words",
			MinPassphrase)
		return e
	}
	switch {
	case len(p) > wallet.MaxPassphrase:
		return refuse("is longer than %d bytes", wallet.MaxPassphrase)
	case !utf8.Valid(p):
		return refuse("is not UTF-8 text")
	case bytes.ContainsFunc(p, unicode.IsControl):
		return refuse("holds a line break or another control character")
	}
	normal := keystore.NFC(p)
	defer normal.Wipe()
	if n := utf8.RuneCount(normal.Bytes); n < MinPassphrase {
		return refuse("has %d characters, at least %d are needed", n, MinPassphrase)
	}
	return nil
}

// askNewPassphrase asks for a passphrase that is good enough, and returns its NFC form, which
// the caller wipes.
func askNewPassphrase(ctx context.Context, source wallet.Passphrase) (*guarded.Memory, error) {
	p, err := wallet.AskPassphrase(ctx, []wallet.Passphrase{source})
	if errors.Is(err, coded.WalletLocked) || errors.Is(err, coded.InvalidPassphrase) {
		e := coded.Setup("get a new passphrase", err)
		e.Advice = "run it on a terminal, or give it a file or a descriptor with the new passphrase"
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	defer clear(p)
	if err := CheckPassphrase(p); err != nil {
		return nil, err
	}
	return keystore.NFC(p), nil
}

// AskFor asks one source for what is no passphrase of this wallet.
func AskFor(ctx context.Context, what string, source wallet.Passphrase) ([]byte, error) {
	given, err := wallet.AskPassphrase(ctx, []wallet.Passphrase{func(ctx context.Context) ([]byte, error) {
		given, err := source(ctx)
		if errors.Is(err, wallet.ErrNoPassphrase) {
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
