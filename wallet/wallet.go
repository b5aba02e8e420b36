package wallet

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
)

const (
	// defaultIdle is how long a wallet stays unlocked without a signature.
	defaultIdle = 15 * time.Minute
	// MaxAge is how long it stays unlocked at all.
	MaxAge = 8 * time.Hour
)

// Wallet is one keystore, locked or unlocked. It is safe for concurrent use,
// once its fields are set. It prints as [redacted].
type Wallet struct {
	guarded.Redacted
	Account // its own; of others [Wallet.AccountNamed]

	// Idle locks the wallet after a time without use; zero means 15 minutes. [MaxAge] locks it
	// whatever its use. Set it before the first use.
	Idle time.Duration

	// Sources are asked for the passphrase, in this order, when a key is needed and the wallet is
	// locked. Set them before the first use.
	Sources []Passphrase

	// Signers sign instead of the keystore's own keys, by chain; the keystore still seals, and still has to
	// be unlocked for whatever is signed. Set it before the first use.
	Signers map[string]Signer

	// Warnings are sentences for the owner about a keystore that opens but should be better; usually none.
	Warnings []string

	dir    string
	header header
	derive kdf
	now    func() time.Time

	deriving sync.Mutex // one derivation at a time: each takes 128·n·r bytes

	mu        sync.Mutex // everything below; signing holds it, so that a lock waits for it
	keys      *keys      // nil while locked
	lockToken string     // what readLockToken answered when they came
	since     time.Time  // of the unlocking
	used      time.Time  // last
	timer     *time.Timer
	locks     uint64 // counts Lock, so that an unlocking it overtook comes to nothing
	closed    bool
	unlocking *attempt
	failures  int       // wrong passphrases in a row
	retryAt   time.Time // none is tried before
}

// Options are for [Create]. The zero value is right outside tests.
type Options struct {
	N      int                  // scrypt's n: a power of two from 2^14 to 2^20; zero means 2^18
	Now    func() time.Time     // the clock, also of the auto-lock; nil means time.Now
	Rand   io.Reader            // of keys, salt and nonce; nil means crypto/rand
	Import []guarded.PrivateKey // keys to take instead of new ones, at most one per chain; wiped

	// Phrase has both keys in place of Import, and the phrase that they come from (recovery.Phrase); wiped.
	// The keystore keeps the phrase unless KeysOnly is set.
	Phrase   *guarded.Seeds
	KeysOnly bool

	// Before is called before the keystore gets its name, to seal what belongs to the wallet from
	// its first moment: see [Wallet.Seal]. nil means nothing.
	Before func(seal func(purpose string, data []byte) []byte) error

	derive kdf // nil means scryptKDF
}

// Create makes a wallet in dir, which it makes too (0700), and returns it unlocked. The passphrase
// is asked for only when dir can take a wallet. What is on the disk has been read back and
// decrypted before it got its name, and no wallet is ever overwritten.
//
// Errors: KEYPAIR_EXISTS, KEYSTORE_PERMISSIONS (dir), SETUP_FAILED (everything
// else: no passphrase, a weak one, the disk), or the context's.
func Create(ctx context.Context, dir string, passphrase Passphrase, opt Options) (*Wallet, error) {
	defer func() {
		for _, i := range opt.Import {
			i.Wipe()
		}
		opt.Phrase.Wipe()
	}()
	if err := opt.complete(); err != nil {
		return nil, err
	}
	if err := checkVacant(dir); err != nil {
		return nil, err
	}
	normal, err := askNewPassphrase(ctx, passphrase)
	if err != nil {
		return nil, err
	}
	defer normal.Wipe()
	k, err := generate(opt.Rand, opt.Import, opt.Phrase)
	if err != nil {
		return nil, coded.Setup("make the keys", err)
	}
	if opt.KeysOnly {
		k.dropPhrase()
	}
	ks, err := create(dir, k, normal.Bytes, opt)
	if err != nil {
		k.wipe()
		return nil, err
	}
	w := newWallet(dir, ks)
	w.derive, w.now = opt.derive, opt.Now
	return w, w.holdKeys(k, locking{here: w.locks, lockToken: w.readLockToken()})
}

// complete sets the defaults and checks the rest.
func (o *Options) complete() error {
	o.N = cmp.Or(o.N, defaultN)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.derive == nil {
		o.derive = scryptKDF
	}
	if err := checkScrypt(uint64(o.N), scryptR, 1); err != nil { // a negative n is a very large one
		return coded.Setup("choose the key derivation", err)
	}
	if o.Phrase != nil && len(o.Import) > 0 {
		return coded.Setup("import keys", errors.New("a phrase has the keys for both chains"))
	}
	var chains []string
	for _, i := range o.Import {
		if guarded.SecretOf(i) == nil || slices.Contains(chains, i.Chain) {
			return coded.Setup("import keys", errors.New("there must be one key for a chain"))
		}
		chains = append(chains, i.Chain)
	}
	return nil
}

// Exists reports whether dir has a keystore; whether it can be opened Open says.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, keystoreName))
	return err == nil
}

// Dir is the directory of the keystore.
func (w *Wallet) Dir() string { return w.dir }

// KeystoreAddresses are those of the keystore's own keys; [Account.Addresses] are of the keys that sign.
func (w *Wallet) KeystoreAddresses() (solana, evm string) { return w.header.solana, w.header.evm }

// checkVacant says whether dir can take a new wallet; it need not be there yet.
func checkVacant(dir string) error {
	err := checkHome(dir)
	if errors.Is(err, coded.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = os.Lstat(filepath.Join(dir, keystoreName))
	switch {
	case err == nil:
		return exists(dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return coded.Setup("look into "+dir, err)
}

// askNewPassphrase asks for a passphrase that is good enough, and returns its NFC form, which
// the caller wipes.
func askNewPassphrase(ctx context.Context, source Passphrase) (*guarded.Memory, error) {
	p, err := AskPassphrase(ctx, []Passphrase{source})
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
	return normalizeNFC(p), nil
}

// create encrypts k and puts it into dir. KEYPAIR_EXISTS, KEYSTORE_PERMISSIONS and the error of
// opt.Before pass as they are, everything else is SETUP_FAILED.
func create(dir string, k *keys, passphrase []byte, opt Options) (*keystore, error) {
	if err := k.checkImports(opt.Import); err != nil {
		return nil, err
	}
	if opt.Before != nil {
		if err := opt.Before(k.mac); err != nil {
			return nil, err
		}
	}
	ks, err := encrypt(k, nil, passphrase, uint64(opt.N), opt.Now(), opt.derive, opt.Rand)
	if err != nil {
		return nil, coded.Setup("encrypt the keys", err)
	}
	data, err := ks.marshal()
	if err != nil {
		return nil, coded.Setup("encode the keystore", err)
	}
	if err := makeHome(dir); err != nil {
		return nil, coded.Setup("make "+dir, err)
	}
	if err := checkHome(dir); err != nil { // another may have made it meanwhile
		return nil, err
	}
	err = writeNew(dir, data, opensWith(passphrase, opt.derive, k))
	if err != nil && !errors.Is(err, coded.Exists) && !errors.Is(err, coded.Permissions) {
		return nil, coded.Setup("write the keystore", err)
	}
	return ks, err
}

// Open reads the keystore of dir and leaves it locked. It refuses, before any
// memory is taken on the file's word:
//
//   - no directory or no file: WALLET_NOT_FOUND
//   - a directory or file of another user or open to others; a symlink, FIFO,
//     device or second hard link in the file's place: KEYSTORE_PERMISSIONS
//   - more than 64 KiB; JSON with unknown, missing, repeated or differently
//     spelled names, or anything behind it; another format, version, KDF or
//     cipher; n not a power of two from 2^14 to 2^20, r not 8, p not 1 to 4; a
//     salt, nonce, ciphertext or commitment of another length: KEYSTORE_CORRUPT
//
// What a crash while the file was written has left behind is removed.
func Open(dir string) (*Wallet, error) {
	if checkHome(dir) == nil {
		removeStaleTemps(dir)
	}
	ks, _, err := readKeystore(dir)
	if err != nil {
		return nil, err
	}
	return newWallet(dir, ks), nil
}

func newWallet(dir string, ks *keystore) *Wallet {
	w := &Wallet{dir: dir, header: ks.header, Warnings: ks.warnings(), derive: scryptKDF, now: time.Now}
	w.Account = Account{wallet: w, place: ownAccount, solana: ks.solana, evm: ks.evm}
	return w
}

// ChangePassphrase encrypts the keystore again: under the new passphrase, a fresh
// salt and nonce, and a KDF cost that is never lower than before and at least
// opt.N. Whoever has a copy of the old file still opens it with the old one.
//
// However it ends, at whatever instant, there is exactly one keystore, and it opens with the old
// passphrase or with the new one: the new file is on the disk, read back and decrypted before it
// takes the old one's name. The wallet stays as it is, locked or unlocked.
//
// Errors: those of [Wallet.Unlock] for the old passphrase; SETUP_FAILED for the
// new one and for the disk: then the old passphrase still opens the wallet.
func (w *Wallet) ChangePassphrase(ctx context.Context, old, fresh Passphrase, opt Options) error {
	if err := opt.complete(); err != nil {
		return err
	}
	ks, before, err := readKeystore(w.dir)
	if err != nil {
		return err
	}
	k, err := w.decryptWith(ctx, ks, []Passphrase{old})
	if err != nil {
		return err
	}
	defer k.wipe()
	normal, err := askNewPassphrase(ctx, fresh)
	if err != nil {
		return err
	}
	defer normal.Wipe()
	ks.n = max(ks.n, uint64(opt.N))
	if err := w.rewrite(k, normal.Bytes, ks, before, opt.Rand); err != nil {
		return changeFailed(err)
	}
	return nil
}

// rewrite puts k, encrypted anew, in the place of the keystore ks, whose bytes are before.
func (w *Wallet) rewrite(k *keys, passphrase []byte, ks *keystore, before []byte, random io.Reader) error {
	w.deriving.Lock()
	defer w.deriving.Unlock()
	fresh, err := encrypt(k, ks.accounts, passphrase, ks.n, ks.created, w.derive, random)
	if err != nil {
		return err
	}
	data, err := fresh.marshal()
	if err != nil {
		return err
	}
	return replace(w.dir, before, data, opensWith(passphrase, w.derive, k))
}

func changeFailed(err error) *coded.Error {
	e := coded.Setup("change the passphrase", err)
	e.Advice = "the old passphrase still opens the wallet"
	switch {
	case errors.Is(err, errBusy):
		e.Advice += "; wait for the other program and try again"
	case errors.Is(err, errUnsynced):
		e.Advice = "the new passphrase opens the wallet now; until the disk works again keep the old one too"
	}
	return e
}

// opensWith verifies that the bytes of a keystore open with a passphrase, and hold the phrase and the
// accounts of want.
func opensWith(passphrase []byte, derive kdf, want *keys) func([]byte) error {
	return func(data []byte) error {
		ks, err := parse(data)
		if err != nil {
			return err
		}
		k, err := ks.decrypt(passphrase, derive)
		if err != nil {
			return err
		}
		defer k.wipe() // decrypt compared the addresses
		if !hmac.Equal(k.phrase, want.phrase) {
			return errors.New("the phrase is another")
		}
		if !k.hasAccountsOf(want) {
			return errors.New("the keys of an account are others")
		}
		return nil
	}
}
