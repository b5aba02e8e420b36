package unlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zalando/go-keyring"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
)

const (
	keyringService = "x402-wallet"
	// keyringTimeout is how long the system's keyring may take. D-Bus can hang for
	// ever, and a locked keyring asks its owner on the screen: who answers later
	// has unlocked it for the next try.
	keyringTimeout = 20 * time.Second
)

// Keyring is the passphrase that [KeepInKeyring] put into the system's keyring (Secret
// Service over D-Bus, macOS Keychain, Windows Credential Manager), where any program of the same
// user may read it. None there is none; a keyring that fails or hangs ends the search.
func Keyring(w *wallet.Wallet) wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		given, err := askKeyring(ctx, "read the passphrase from", func() ([]byte, error) {
			text, err := keyring.Get(keyringService, keyringName(w))
			return []byte(text), err
		})
		if errors.Is(err, keyring.ErrNotFound) {
			return nil, wallet.ErrNoPassphrase
		}
		return given, err
	}
}

// KeepInKeyring puts the passphrase into the system's keyring, under the
// wallet's EVM address, after checking that it is the right one. Errors: those
// of [wallet.Wallet.Confirm]; SETUP_FAILED when the keyring does not take it.
func KeepInKeyring(ctx context.Context, w *wallet.Wallet, passphrase wallet.Passphrase) error {
	var given []byte
	defer func() { clear(given) }()
	err := w.Confirm(ctx, func(ctx context.Context) (p []byte, err error) {
		p, err = passphrase(ctx)
		given = append(given, p...)
		return p, err
	})
	if err != nil {
		return err
	}
	text := string(given) // now: a caller that gives up waiting clears given
	_, err = askKeyring(ctx, "put the passphrase into", func() ([]byte, error) {
		return nil, keyring.Set(keyringService, keyringName(w), text)
	})
	if err != nil {
		return coded.Setup("keep the passphrase", err)
	}
	return nil
}

// ForgetKeyring takes the passphrase out of the system's keyring, and says whether it was there.
func ForgetKeyring(ctx context.Context, w *wallet.Wallet) (was bool, err error) {
	_, err = askKeyring(ctx, "take the passphrase out of", func() ([]byte, error) {
		return nil, keyring.Delete(keyringService, keyringName(w))
	})
	if errors.Is(err, keyring.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func askKeyring(ctx context.Context, what string, f func() ([]byte, error)) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, keyringTimeout)
	defer cancel()
	p, err := guarded.Await(limited, f)
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, keyring.ErrNotFound):
		return p, err
	case limited.Err() != nil:
		err = fmt.Errorf("no answer within %v", keyringTimeout)
	}
	clear(p)
	return nil, &coded.Error{As: coded.WalletLocked, Msg: "could not " + what + " the system's keyring",
		Cause:  err,
		Advice: "unlock the keyring, or set keyring = false under [keystore]"}
}

// keyringName is the account in the keyring: the address of the keystore's own key, whoever signs.
func keyringName(w *wallet.Wallet) string {
	_, evm := w.KeystoreAddresses()
	return evm
}
