package owner

import (
	"context"
	"errors"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/record"
)

// HasPhrase reports whether the keystore holds the recovery phrase of its keys. It is not unlocked for that.
func HasPhrase(w *wallet.Wallet) (bool, error) {
	ks, _, err := keystore.Read(w.Dir())
	return err == nil && ks.Holds.Phrase, err
}

// Phrase takes the recovery phrase out of the keystore, for package recovery, which wipes it. The passphrase
// is asked for, and the wallet is not unlocked. what is what the phrase is for, as an error says it. Errors:
// those of [wallet.Wallet.Unlock]; SETUP_FAILED where there is no phrase.
func Phrase(ctx context.Context, w *wallet.Wallet, typed wallet.Passphrase,
	what string) (*guarded.Seeds, error) {
	ks, _, err := keystore.Read(w.Dir())
	if err != nil {
		return nil, err
	}
	if !ks.Holds.Phrase {
		return nil, noPhrase(what)
	}
	k, err := w.Decrypt(ctx, guarded.GiveLeave(), ks, typed)
	if err != nil {
		return nil, err
	}
	defer k.Wipe()
	return phraseOut(k, w.Dir()), nil
}

// phraseOut copies the phrase, and says whose it is.
func phraseOut(k *keystore.Keys, home string) *guarded.Seeds {
	s := guarded.NewSeeds(record.Size)
	s.Home = home
	s.Solana, s.EVM = k.Addresses()
	_, _, record := guarded.PartsOf(s)
	copy(record, k.Phrase)
	return s
}

func noPhrase(what string) *coded.Error {
	e := coded.Setup(what, errors.New("this keystore has none: its keys were imported, or made without one"))
	e.Advice = "back up keystore.json, and remember its passphrase: together they are the keys"
	return e
}
