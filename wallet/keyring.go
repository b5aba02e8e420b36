package wallet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zalando/go-keyring"
)

const (
	keyringService = "x402-wallet"
	// keyringTimeout is how long the system's keyring may take. D-Bus can hang for
	// ever, and a locked keyring asks its owner on the screen: who answers later
	// has unlocked it for the next try.
	keyringTimeout = 20 * time.Second
)

// FromKeyring is the passphrase that [Wallet.KeepInKeyring] put into the
// system's keyring (Secret Service over D-Bus, macOS Keychain, Windows
// Credential Manager), where any program of the same user may read it. None
// there is none; a keyring that fails or hangs ends the search.
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
	_, err = w.askKeyring(ctx, "put the passphrase into", func() ([]byte, error) {
		return nil, keyring.Set(keyringService, w.header.evm, string(given))
	})
	if err != nil {
		return setup("keep the passphrase", err)
	}
	return nil
}

// ForgetKeyring takes the passphrase out of the system's keyring, and says
// whether it was there.
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
