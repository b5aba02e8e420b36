package wallet

import (
	"context"
	"errors"
)

// ChangePassphrase encrypts the keystore again: under the new passphrase, a fresh
// salt and nonce, and a KDF cost that is never lower than before and at least
// opt.N. Whoever has a copy of the old file still opens it with the old one.
//
// However it ends, at whatever instant, there is exactly one keystore, and it
// opens with the old passphrase or with the new one: the new file is on the
// disk, read back and decrypted before it takes the old one's name. The wallet
// stays as it is, locked or unlocked.
//
// Errors: those of [Wallet.Unlock] for the old passphrase; SETUP_FAILED for the
// new one and for the disk: then the old passphrase still opens the wallet.
func (w *Wallet) ChangePassphrase(ctx context.Context, old, fresh Passphrase, opt Options) error {
	opt.setDefaults()
	if err := opt.check(); err != nil {
		return err
	}
	before, err := readKeystoreFile(w.dir)
	if err != nil {
		return err
	}
	ks, err := parse(before)
	if err != nil {
		return err
	}
	k, err := w.decryptWith(ctx, ks, []Passphrase{old})
	if err != nil {
		return err
	}
	defer k.wipe()
	passphrase, err := askNewPassphrase(ctx, fresh)
	if err != nil {
		return err
	}
	defer clear(passphrase)
	w.deriving.Lock()
	defer w.deriving.Unlock()
	changed, err := encrypt(k, passphrase, max(ks.n, uint64(opt.N)), ks.created, w.derive, opt.Rand)
	if err != nil {
		return changeFailed(err)
	}
	data, err := changed.marshal()
	if err != nil {
		return changeFailed(err)
	}
	if err := replace(w.dir, before, data, opensWith(passphrase, w.derive)); err != nil {
		return changeFailed(err)
	}
	return nil
}

func changeFailed(err error) *codedError {
	e := setup("change the passphrase", err)
	e.hint = "the old passphrase still opens the wallet"
	switch {
	case errors.Is(err, errBusy):
		e.hint += "; wait for the other program and try again"
	case errors.Is(err, errUnsynced):
		e.hint = "the new passphrase opens the wallet now; until the disk works again keep the old one too"
	}
	return e
}

// opens verifies that the bytes of a keystore open with a passphrase.
func opensWith(passphrase []byte, derive kdf) func([]byte) error {
	return func(data []byte) error {
		ks, err := parse(data)
		if err != nil {
			return err
		}
		k, err := ks.decrypt(passphrase, derive)
		k.wipe()
		return err // decrypt compared the addresses
	}
}
