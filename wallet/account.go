package wallet

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
)

// A wallet may have other accounts besides its own: each with keys of its own, under the one passphrase. Who
// pays from which, and how much, is for the owner's rules to say.

// MaxAccounts is how many accounts a wallet may have besides its own.
const MaxAccounts = 64

// MaxAccount is the highest account that [StandardPaths] has.
const MaxAccount = 1<<31 - 1

// AccountInfo is what everybody may know of an account.
type AccountInfo struct {
	Name string
	// Index is which account of the wallet's recovery phrase it is, at [StandardPaths]; 0: its keys come from
	// no phrase, and keystore.json is all that there is of them.
	Index       uint32
	Solana, EVM string // addresses, as of [Wallet.Addresses]
}

// Account is one account of a wallet, and all that is ever signed with its keys. It lasts as long as the
// wallet.
type Account struct {
	wallet *Wallet
	place  int // among keys.accounts; ownAccount
	// addresses of the keystore's keys
	solana, evm string
}

// ownAccount is the place of the wallet's own account.
const ownAccount = -1

// Accounts are the others, as the keystore had them when it was opened.
func (w *Wallet) Accounts() []AccountInfo { return slices.Clone(w.header.accounts) }

// AccountNamed is an account by its name; "" is the wallet's own. WALLET_NOT_FOUND: the keystore had none of
// that name when it was opened.
func (w *Wallet) AccountNamed(name string) (*Account, error) {
	if name == "" {
		return &w.Account, nil
	}
	for i, a := range w.header.accounts {
		if a.Name == name {
			return &Account{wallet: w, place: i, solana: a.Solana, evm: a.EVM}, nil
		}
	}
	return nil, &coded.Error{As: coded.NotFound, Msg: fmt.Sprintf("the keystore has no account %.60q", name),
		Advice: "x402-wallet account list shows those there are; x402-wallet account add makes one"}
}

// Addresses are the public addresses: base58 for Solana, 0x with the EIP-55 checksum for EVM chains. Those of
// the keystore's own keys are, while the wallet is locked, the ones in the file.
func (a *Account) Addresses() (solana, evm string) { return a.self().solana, a.self().evm }

// pair is the account's among unlocked keys.
func (a *Account) pair(k *keys) *pair {
	if a.place == ownAccount {
		return &k.material.pair
	}
	return &k.accounts[a.place]
}

// NewAccount is an account to be.
type NewAccount struct {
	Name string
	// Index is which account of the recovery phrase it is to be; 0: the first that is not there yet. Of no
	// use where the keystore has no phrase: then the keys are random.
	Index uint32
	// PhrasePassphrase gives the passphrase of the phrase itself (BIP-39); nil: it has none.
	PhrasePassphrase Passphrase
	// Derive makes the keys of an account of the phrase, at [recovery.StandardPaths]: it is recovery.Derive.
	Derive func(phrase *guarded.Seeds, passphrase []byte, account uint32) (*guarded.Seeds, error)
}

// AddAccount gives the keystore another account, under the same passphrase. However it ends, there is exactly
// one keystore, and the passphrase opens it; this wallet is as it was, and knows the account when it is
// opened again.
//
// Errors: those of [Wallet.Unlock]; SETUP_FAILED: the name or the place in the phrase is taken or none, the
// phrase has another passphrase, or the disk.
func (w *Wallet) AddAccount(ctx context.Context, typed Passphrase, a NewAccount) (AccountInfo, error) {
	o, err := w.openForChange(ctx, typed)
	if err != nil {
		return AccountInfo{}, err
	}
	defer o.wipe()
	info := AccountInfo{Name: a.Name, Index: a.Index}
	if err := o.ks.checkName(info); err != nil {
		return info, accountFailed(err)
	}
	switch {
	case o.keys.hasPhrase():
		info, err = o.deriveAccount(ctx, w.dir, info, a)
	case a.Index != 0:
		return info, noPhrase("take an account of the phrase")
	default:
		info, err = o.makeAccount(info, rand.Reader)
	}
	if err == nil {
		o.ks.accounts = append(o.ks.accounts, info)
		err = w.rewrite(o.keys, o.passphrase.Bytes, o.ks, o.before, rand.Reader)
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
func (o *openedKeystore) makeAccount(info AccountInfo, random io.Reader) (AccountInfo, error) {
	o.keys = o.keys.withRoom()
	fresh := &o.keys.accounts[len(o.keys.accounts)-1]
	for _, s := range [][]byte{fresh.solana[:guarded.Size], fresh.evm.Secret[:]} {
		if _, err := io.ReadFull(random, s); err != nil {
			return info, fmt.Errorf("read random bytes: %w", err)
		}
	}
	if _, err := o.keys.complete(); err != nil { // about once in 2^128 times: another draw is as good
		return info, err
	}
	info.Solana, info.EVM = fresh.addresses()
	return info, nil
}

// deriveAccount adds those keys of the phrase that info names, or the first that no account has.
func (o *openedKeystore) deriveAccount(ctx context.Context, home string, info AccountInfo,
	a NewAccount) (AccountInfo, error) {
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
	phrase := o.keys.phraseOut(home)
	defer phrase.Wipe()
	derive := func(account uint32) (*guarded.Seeds, error) { return a.Derive(phrase, extra, account) }
	if info.Index != 0 {
		return o.deriveAt(info, derive)
	}
	for info.Index = 1; ; info.Index++ {
		isTaken := func(a AccountInfo) bool { return a.Index == info.Index }
		if slices.ContainsFunc(o.ks.accounts, isTaken) {
			continue
		}
		derived, err := o.deriveAt(info, derive)
		if !errors.Is(err, errOwnKeys) { // the wallet's own account may be at one of these places
			return derived, err
		}
	}
}

// deriveAt adds the keys of the phrase that info names.
func (o *openedKeystore) deriveAt(info AccountInfo, derive func(uint32) (*guarded.Seeds, error)) (AccountInfo,
	error) {
	derived, err := derive(info.Index)
	if err != nil {
		return info, err
	}
	defer derived.Wipe()
	info.Solana, info.EVM = derived.Solana, derived.EVM
	if err := o.ks.checkNew(info); err != nil {
		return info, err
	}
	o.keys = o.keys.withRoom()
	o.keys.accounts[len(o.keys.accounts)-1].fill(derived)
	_, err = o.keys.complete()
	return info, err
}

// withRoom moves k to where there is room for one more account, which is blank: whoever fills it calls
// complete. k is wiped.
func (k *keys) withRoom() *keys {
	defer k.wipe()
	roomy := blankKeys(len(k.accounts) + 1)
	all := contents{phrase: true}
	into := roomy.parts(all)
	for i, part := range k.parts(all) {
		copy(into[i].secret, part.secret)
	}
	return roomy
}

// hasAccountsOf reports whether k has the accounts of other keys, with the same secrets.
func (k *keys) hasAccountsOf(other *keys) bool {
	have := len(k.accounts) == len(other.accounts)
	for i := range min(len(k.accounts), len(other.accounts)) {
		have = have && hmac.Equal(k.accounts[i].solana, other.accounts[i].solana) &&
			hmac.Equal(k.accounts[i].evm.Secret[:], other.accounts[i].evm.Secret[:])
	}
	return have
}

var errOwnKeys = errors.New("its keys are the wallet's own")

var accountName = pattern(`^[a-z][a-z0-9_-]{0,39}$`)

// checkName refuses the name or the place of one more account.
func (h *header) checkName(a AccountInfo) error {
	if !accountName().MatchString(a.Name) {
		return fmt.Errorf("%.60q is no account's name: 1 to 40 of a-z, 0-9, - and _, and first a letter",
			a.Name)
	}
	if len(h.accounts) >= MaxAccounts {
		return fmt.Errorf("a wallet has at most %d accounts besides its own", MaxAccounts)
	}
	if a.Index > MaxAccount {
		return fmt.Errorf("a phrase has no account %d: the last is %d", a.Index, MaxAccount)
	}
	for _, other := range h.accounts {
		if other.Name == a.Name {
			return fmt.Errorf("there is an account %s already", a.Name)
		}
	}
	return nil
}

// checkNew refuses one more account whose name or key another one has.
func (h *header) checkNew(a AccountInfo) error {
	if err := h.checkName(a); err != nil {
		return err
	}
	if a.Solana == h.solana || a.EVM == h.evm {
		return errOwnKeys
	}
	for _, other := range h.accounts {
		if other.Solana == a.Solana || other.EVM == a.EVM {
			return fmt.Errorf("its keys are those of the account %s", other.Name)
		}
	}
	return nil
}

// openedKeystore is a keystore that was decrypted to be written anew.
type openedKeystore struct {
	ks         *keystore
	before     []byte // the file
	keys       *keys
	passphrase *guarded.Memory // that opened it, in NFC
}

// wipe wipes keys and passphrase.
func (o *openedKeystore) wipe() {
	o.keys.wipe()
	o.passphrase.Wipe()
}

// openForChange decrypts the keystore with a passphrase that is typed at this moment. Errors as of
// [Wallet.Unlock].
func (w *Wallet) openForChange(ctx context.Context, typed Passphrase) (*openedKeystore, error) {
	if err := w.checkBackoff(); err != nil {
		return nil, err
	}
	ks, before, err := readKeystore(w.dir)
	if err != nil {
		return nil, err
	}
	given, err := AskPassphrase(ctx, []Passphrase{typed})
	if err != nil {
		return nil, err
	}
	passphrase := normalizeNFC(given)
	clear(given)
	again := func(context.Context) ([]byte, error) { return bytes.Clone(passphrase.Bytes), nil }
	k, err := w.decryptWith(ctx, ks, []Passphrase{again})
	if err != nil {
		passphrase.Wipe()
		return nil, err
	}
	return &openedKeystore{ks: ks, before: before, keys: k, passphrase: passphrase}, nil
}
