package owner

import (
	"context"
	"crypto/hmac"
	"errors"
	"io"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// ChangePassphrase encrypts the keystore again: under the new passphrase, a fresh
// salt and nonce, and a KDF cost that is never lower than before and at least
// opt.N. Whoever has a copy of the old file still opens it with the old one.
//
// However it ends, at whatever instant, there is exactly one keystore, and it opens with the old
// passphrase or with the new one: the new file is on the disk, read back and decrypted before it
// takes the old one's name. The wallet stays as it is, locked or unlocked.
//
// Errors: those of [wallet.Wallet.Unlock] for the old passphrase; SETUP_FAILED for the
// new one and for the disk: then the old passphrase still opens the wallet.
func ChangePassphrase(ctx context.Context, w *wallet.Wallet, old, fresh wallet.Passphrase,
	opt Options) error {
	if err := opt.complete(); err != nil {
		return err
	}
	ks, before, err := keystore.Read(w.Dir())
	if err != nil {
		return err
	}
	k, err := w.Decrypt(ctx, guarded.GiveLeave(), ks, old)
	if err != nil {
		return err
	}
	defer k.Wipe()
	normal, err := askNewPassphrase(ctx, fresh)
	if err != nil {
		return err
	}
	defer normal.Wipe()
	ks.N = max(ks.N, uint64(opt.N))
	if err := rewrite(w, k, normal.Bytes, ks, before, opt.Rand); err != nil {
		return changeFailed(err)
	}
	return nil
}

// rewrite puts k, encrypted anew, in the place of the keystore ks, whose bytes are before.
func rewrite(w *wallet.Wallet, k *keystore.Keys, passphrase []byte, ks *keystore.File, before []byte,
	random io.Reader) error {
	fresh, err := encrypt(k, ks.Accounts, passphrase, ks.N, ks.Created, w.Derive, random)
	if err != nil {
		return err
	}
	data, err := marshal(fresh)
	if err != nil {
		return err
	}
	return replace(w.Dir(), before, data, opensWith(passphrase, w.Derive, k))
}

func changeFailed(err error) *coded.Error {
	e := coded.Setup("change the passphrase", err)
	e.Advice = "the old passphrase still opens the wallet"
	switch {
	case errors.Is(err, keystore.ErrBusy):
		e.Advice += "; wait for the other program and try again"
	case errors.Is(err, errUnsynced):
		e.Advice = "the new passphrase opens the wallet now; until the disk works again keep the old one too"
	}
	return e
}

// opensWith verifies that the bytes of a keystore open with a passphrase, and hold the phrase and the
// accounts of want.
func opensWith(passphrase []byte, derive keystore.KDF, want *keystore.Keys) func([]byte) error {
	return func(data []byte) error {
		ks, err := keystore.Parse(data)
		if err != nil {
			return err
		}
		k, err := ks.Decrypt(passphrase, derive)
		if err != nil {
			return err
		}
		defer k.Wipe() // Decrypt compared the addresses
		if !hmac.Equal(k.Phrase, want.Phrase) {
			return errors.New("the phrase is another")
		}
		if !hasAccountsOf(k, want) {
			return errors.New("the keys of an account are others")
		}
		return nil
	}
}

// hasAccountsOf reports whether k has the accounts of other keys, with the same secrets.
func hasAccountsOf(k, other *keystore.Keys) bool {
	have := len(k.Accounts) == len(other.Accounts)
	for i := range min(len(k.Accounts), len(other.Accounts)) {
		have = have && hmac.Equal(k.Accounts[i].Solana, other.Accounts[i].Solana) &&
			hmac.Equal(k.Accounts[i].EVM.Secret[:], other.Accounts[i].EVM.Secret[:])
	}
	return have
}
