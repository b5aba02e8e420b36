package owner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// MaxAccount is the highest account that recovery.StandardPaths has.
const MaxAccount = keystore.MaxAccount

type NewAccount struct {
	Name string
	// Index is which account of the recovery phrase it is to be; 0: the first that is not there yet. Of no
	// use where the keystore has no phrase: then the keys are random.
	Index uint32
	// PhrasePassphrase gives the passphrase of the phrase itself (BIP-39); nil: it has none.
	PhrasePassphrase wallet.Passphrase
	// Derive makes the keys of an account of the phrase, at recovery.StandardPaths: it is recovery.Derive.
	Derive func(phrase *guarded.Seeds, passphrase []byte, account uint32) (*guarded.Seeds, error)
}

// AddAccount gives the keystore another account, under the same passphrase. However it ends, there is exactly
// one keystore, and the passphrase opens it; this wallet is as it was, and knows the account when it is
// opened again.
//
// Errors: those of [wallet.Wallet.Unlock]; SETUP_FAILED: the name or the place in the phrase is taken or
// none, the phrase has another passphrase, or the disk.
func AddAccount(ctx context.Context, w *wallet.Wallet, typed wallet.Passphrase,
	a NewAccount) (wallet.AccountInfo, error) {
	o, err := openForChange(ctx, w, typed)
	if err != nil {
		return wallet.AccountInfo{}, err
	}
	defer o.wipe()
	info := wallet.AccountInfo{Name: a.Name, Index: a.Index}
	if err := o.ks.CheckName(info); err != nil {
		return info, accountFailed(err)
	}
	switch {
	case o.keys.HasPhrase():
		info, err = o.deriveAccount(ctx, w.Dir(), info, a)
	case a.Index != 0:
		return info, noPhrase("take an account of the phrase")
	default:
		info, err = o.makeAccount(info, rand.Reader)
	}
	if err == nil {
		o.ks.Accounts = append(o.ks.Accounts, info)
		err = rewrite(w, o.keys, o.passphrase.Bytes, o.ks, o.before, rand.Reader)
	}
	if _, isCoded := errors.AsType[*coded.Error](err); isCoded || err == nil {
		return info, err
	}
	return info, accountFailed(err)
}

func accountFailed(err error) error {
	e := coded.Setup("add the account", err)
	e.Advice = "the passphrase is what it was; x402-wallet account list shows which accounts there are"
	return e
}

// makeAccount adds random keys.
func (o *openedKeystore) makeAccount(info wallet.AccountInfo, random io.Reader) (wallet.AccountInfo, error) {
	o.keys = withRoom(o.keys)
	fresh := &o.keys.Accounts[len(o.keys.Accounts)-1]
	for _, s := range [][]byte{fresh.Solana[:guarded.Size], fresh.EVM.Secret[:]} {
		if _, err := io.ReadFull(random, s); err != nil {
			return info, fmt.Errorf("read random bytes: %w", err)
		}
	}
	if _, err := o.keys.Complete(); err != nil { // about once in 2^128 times: another draw is as good
		return info, err
	}
	info.Solana, info.EVM = fresh.Addresses()
	return info, nil
}

// deriveAccount adds those keys of the phrase that info names, or the first that no account has.
func (o *openedKeystore) deriveAccount(ctx context.Context, home string, info wallet.AccountInfo,
	a NewAccount) (wallet.AccountInfo, error) {
	if a.Derive == nil {
		return info, errors.New("its keys come from the recovery phrase, and nothing derives them")
	}
	var extra []byte
	if a.PhrasePassphrase != nil {
		var err error
		if extra, err = AskFor(ctx, "the phrase's passphrase", a.PhrasePassphrase); err != nil {
			return info, err
		}
		defer clear(extra)
	}
	phrase := phraseOut(o.keys, home)
	defer phrase.Wipe()
	derive := func(account uint32) (*guarded.Seeds, error) { return a.Derive(phrase, extra, account) }
	if info.Index != 0 {
		return o.deriveAt(info, derive)
	}
	for info.Index = 1; ; info.Index++ {
		isTaken := func(a wallet.AccountInfo) bool { return a.Index == info.Index }
		if slices.ContainsFunc(o.ks.Accounts, isTaken) {
			continue
		}
		derived, err := o.deriveAt(info, derive)
		if !errors.Is(err, keystore.ErrOwnKeys) { // the wallet's own account may be at one of these places
			return derived, err
		}
	}
}

// deriveAt adds the keys of the phrase that info names.
func (o *openedKeystore) deriveAt(info wallet.AccountInfo,
	derive func(uint32) (*guarded.Seeds, error)) (wallet.AccountInfo, error) {
	derived, err := derive(info.Index)
	if err != nil {
		return info, err
	}
	defer derived.Wipe()
	info.Solana, info.EVM = derived.Solana, derived.EVM
	if err := o.ks.CheckNew(info); err != nil {
		return info, err
	}
	o.keys = withRoom(o.keys)
	fill(&o.keys.Accounts[len(o.keys.Accounts)-1], derived)
	_, err = o.keys.Complete()
	return info, err
}

// withRoom moves k to where there is room for one more account, which is blank: whoever fills it calls
// Complete. k is wiped.
func withRoom(k *keystore.Keys) *keystore.Keys {
	defer k.Wipe()
	roomy := keystore.Blank(len(k.Accounts) + 1)
	all := keystore.Contents{Phrase: true}
	into := roomy.Parts(all)
	for i, part := range k.Parts(all) {
		copy(into[i].Secret, part.Secret)
	}
	return roomy
}

// openedKeystore is a keystore that was decrypted to be written anew.
type openedKeystore struct {
	ks         *keystore.File
	before     []byte // the file
	keys       *keystore.Keys
	passphrase *guarded.Memory // that opened it, in NFC
}

func (o *openedKeystore) wipe() {
	o.keys.Wipe()
	o.passphrase.Wipe()
}

// openForChange decrypts the keystore with a passphrase that is typed at this moment. Errors as of
// [wallet.Wallet.Unlock].
func openForChange(ctx context.Context, w *wallet.Wallet, typed wallet.Passphrase) (o *openedKeystore,
	err error) {
	o = &openedKeystore{}
	o.ks, o.before, err = keystore.Read(w.Dir())
	if err != nil {
		return nil, err
	}
	o.keys, err = w.Decrypt(ctx, guarded.GiveLeave(), o.ks, func(ctx context.Context) ([]byte, error) {
		given, err := typed(ctx)
		o.passphrase = keystore.NFC(given)
		return given, err
	})
	if err != nil {
		o.wipe()
		return nil, err
	}
	return o, nil
}
