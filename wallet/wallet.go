package wallet

import (
	"sync"
	"time"

	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
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
	header keystore.Header
	derive keystore.KDF
	now    func() time.Time

	deriving sync.Mutex // see Derive

	mu        sync.Mutex     // everything below; signing holds it, so that a lock waits for it
	keys      *keystore.Keys // nil while locked
	lockToken string         // what readLockToken answered when they came
	since     time.Time      // of the unlocking
	used      time.Time      // last
	timer     *time.Timer
	locks     uint64 // counts Lock, so that an unlocking it overtook comes to nothing
	closed    bool
	unlocking *attempt
	failures  int       // wrong passphrases in a row
	retryAt   time.Time // none is tried before
}

// Dir is the directory of the keystore.
func (w *Wallet) Dir() string { return w.dir }

// KeystoreAddresses are those of the keystore's own keys; [Account.Addresses] are of the keys that sign.
func (w *Wallet) KeystoreAddresses() (solana, evm string) { return w.header.Solana, w.header.EVM }

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
	if keystore.CheckHome(dir) == nil {
		keystore.RemoveStaleTemps(dir)
	}
	ks, _, err := keystore.Read(dir)
	if err != nil {
		return nil, err
	}
	return New(dir, ks, keystore.Scrypt, time.Now), nil
}

// New is the wallet of a keystore in dir, locked; now is the clock of its auto-lock, too.
func New(dir string, ks *keystore.File, derive keystore.KDF, now func() time.Time) *Wallet {
	w := &Wallet{dir: dir, header: ks.Header, Warnings: ks.Warnings(), derive: derive, now: now}
	w.Account = Account{wallet: w, place: ownAccount, addresses: addresses{ks.Solana, ks.EVM}}
	return w
}
