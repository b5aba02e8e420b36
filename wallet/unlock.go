package wallet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// After freeAttempts wrong passphrases in a row each further one costs a wait,
// twice as long every time, on top of the KDF's own second.
const (
	freeAttempts = 5
	maxBackoff   = time.Minute
)

const (
	// LockName is a file beside the keystore: whoever holds keys wipes them when
	// it changes. Its content has no meaning; anybody who can write it may lock.
	LockName = "locked"
	// lockPollInterval is how often an unlocked wallet looks at it, besides before each signature.
	lockPollInterval = time.Second
)

// attempt is one way from a passphrase to the keys. Whoever needs the keys
// meanwhile waits for it, so a hundred first payments derive once.
type attempt struct {
	shared bool // it asks the wallet's own sources
	done   chan struct{}
	err    error // its failure, if that is shared; set before done is closed
}

// Unlock decrypts the keys with the first passphrase that the given sources
// have, or those of [Wallet.Sources] when none is given, and holds them until
// [Wallet.Lock] or the auto-lock. It does nothing to an unlocked wallet.
//
// Concurrent calls share one derivation; a call with its own sources does not
// share the failure of another's. Errors: WALLET_LOCKED (no source answered),
// INVALID_PASSPHRASE, those of [Open], or the context's.
func (w *Wallet) Unlock(ctx context.Context, sources ...Passphrase) error {
	for {
		w.mu.Lock()
		if w.current() != nil {
			w.mu.Unlock()
			return nil
		}
		other := w.unlocking
		if other == nil {
			a := &attempt{done: make(chan struct{}), shared: len(sources) == 0}
			if a.shared {
				sources = w.Sources
			}
			w.unlocking = a
			locks := locking{here: w.locks, lockToken: w.readLockToken()}
			w.mu.Unlock()
			return w.runUnlocking(ctx, a, sources, locks)
		}
		w.mu.Unlock()

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-other.done:
		}
		if len(sources) == 0 && other.err != nil {
			return other.err
		}
	}
}

// runUnlocking makes the attempt for all callers that wait. However it ends, the next may begin.
func (w *Wallet) runUnlocking(ctx context.Context, a *attempt, sources []Passphrase, locks locking) error {
	defer func() {
		w.mu.Lock()
		w.unlocking = nil
		w.mu.Unlock()
		close(a.done)
	}()
	k, err := w.unlockOnce(ctx, sources)
	if err == nil {
		err = w.holdKeys(k, locks)
	}
	if a.shared && ctx.Err() == nil { // the end of this context is nobody else's
		a.err = err
	}
	return err
}

// Confirm asks one source for the passphrase and says whether it is right, also
// when the wallet is unlocked, and without unlocking it: for the decisions that
// only a person may take, at that moment.
func (w *Wallet) Confirm(ctx context.Context, passphrase Passphrase) error {
	k, err := w.unlockOnce(ctx, []Passphrase{passphrase})
	k.Wipe()
	return err
}

// unlockOnce reads the file again (its passphrase may have been changed), asks for the
// passphrase and derives. Nobody is asked in vain: a bad file comes first.
func (w *Wallet) unlockOnce(ctx context.Context, sources []Passphrase) (*keystore.Keys, error) {
	ks, _, err := keystore.Read(w.dir)
	if err != nil {
		return nil, err
	}
	return w.decryptWith(ctx, ks, sources)
}

// decryptWith asks for the passphrase of ks, which must be this wallet's.
func (w *Wallet) decryptWith(ctx context.Context, ks *keystore.File,
	sources []Passphrase) (*keystore.Keys, error) {
	known := w.header.Accounts // those that were added since come behind them
	if ks.Solana != w.header.Solana || ks.EVM != w.header.EVM || len(ks.Accounts) < len(known) ||
		!slices.Equal(ks.Accounts[:len(known)], known) {
		return nil, coded.Corrupt("it holds other keys than when it was opened")
	}
	if err := w.checkBackoff(); err != nil {
		return nil, err
	}
	given, err := AskPassphrase(ctx, sources)
	if err != nil {
		return nil, err
	}
	defer clear(given)
	passphrase := keystore.NFC(given)
	defer passphrase.Wipe()

	k, err := ks.Decrypt(passphrase.Bytes, w.Derive)
	w.count(err)
	return k, err
}

// Decrypt asks one source for the passphrase of ks, which must be this wallet's, and leaves the wallet as it
// is. It is for package owner, which wipes the keys: nobody else has a leave.
func (w *Wallet) Decrypt(ctx context.Context, leave guarded.Leave, ks *keystore.File,
	source Passphrase) (*keystore.Keys, error) {
	if !leave.IsGiven() {
		return nil, coded.Locked("its keys are for nobody else")
	}
	return w.decryptWith(ctx, ks, []Passphrase{source})
}

// Hold unlocks the wallet with the keys of its keystore, which package owner has just made.
func (w *Wallet) Hold(k *keystore.Keys) error {
	return w.holdKeys(k, locking{here: w.locks, lockToken: w.readLockToken()})
}

// Derive is the wallet's KDF, one derivation at a time: each takes 128·n·r bytes.
func (w *Wallet) Derive(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
	w.deriving.Lock()
	defer w.deriving.Unlock()
	return w.derive(passphrase, salt, n, r, p)
}

// checkBackoff refuses while a wait for wrong passphrases lasts.
func (w *Wallet) checkBackoff() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return coded.Locked("the wallet is closed")
	}
	if wait := w.retryAt.Sub(w.now()); wait > 0 {
		e := coded.WrongPassphrase()
		e.Msg = fmt.Sprintf("%d wrong passphrases in a row; the next is tried in %v", w.failures,
			(wait + time.Second - 1).Truncate(time.Second))
		return e
	}
	return nil
}

func (w *Wallet) count(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(err, coded.InvalidPassphrase) {
		w.failures = 0
		return
	}
	w.failures++
	if over := w.failures - freeAttempts; over >= 0 {
		w.retryAt = w.now().Add(min(time.Second<<min(over, 10), maxBackoff))
	}
}

// locking is how often a wallet was locked, by this process and by others.
type locking struct {
	here      uint64 // Lock
	lockToken string // changes with LockAll, by any process
}

// holdKeys keeps k for signing, unless Lock or LockAll was called since locks was read.
func (w *Wallet) holdKeys(k *keystore.Keys, locks locking) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || locks != (locking{here: w.locks, lockToken: w.readLockToken()}) {
		k.Wipe()
		return coded.Locked("the wallet was locked while it was being unlocked")
	}
	w.wipeKeys()
	k.DropPhrase()
	w.keys, w.lockToken = k, locks.lockToken
	w.since = w.now()
	w.used = w.since
	w.timer = time.AfterFunc(min(w.idle(), lockPollInterval), w.expire)
	return nil
}

// withKeys gives the keys to f, unlocking first if need be. f runs under mu: signing
// takes microseconds, and a lock, timed or not, comes before it or after it.
func (w *Wallet) withKeys(ctx context.Context, f func(*keystore.Keys)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for tries := 0; !w.withHeldKeys(f); tries++ {
		if tries == 2 { // the second was for a lock that came between
			return coded.Locked("the wallet was locked again at once")
		}
		if err := w.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *Wallet) withHeldKeys(f func(*keystore.Keys)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.current()
	if k == nil {
		return false
	}
	w.used = w.now()
	guarded.WithCleanStack(func() { f(k) })
	return true
}

// Lock wipes the keys, after a signature that is being made. An unlocking that
// has begun comes to nothing.
func (w *Wallet) Lock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.locks++
	w.wipeKeys()
}

// Close locks the wallet for good. It never fails.
func (w *Wallet) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.wipeKeys()
	return nil
}

// Locked reports whether the next signature has to ask for the passphrase.
func (w *Wallet) Locked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current() == nil
}

// current is the held keys if their time is not over and nobody asked to lock; mu is held.
func (w *Wallet) current() *keystore.Keys {
	if w.keys == nil {
		return nil
	}
	if w.left() <= 0 || w.readLockToken() != w.lockToken {
		w.wipeKeys()
	}
	return w.keys
}

// wipeKeys wipes the held keys; mu is held.
func (w *Wallet) wipeKeys() {
	if w.keys == nil {
		return
	}
	w.timer.Stop()
	w.keys.Wipe()
	w.keys = nil
}

// expire is the timer's: it wipes the keys in time even if nobody asks again.
func (w *Wallet) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current() != nil {
		w.timer.Reset(min(w.left(), lockPollInterval))
	}
}

// left is the time until the auto-lock; mu is held.
func (w *Wallet) left() time.Duration {
	now := w.now()
	return min(w.idle()-elapsed(w.used, now), MaxAge-elapsed(w.since, now))
}

// elapsed goes by the clock that ran further: the monotonic one stands still
// while a laptop sleeps, the wall clock can be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

func (w *Wallet) idle() time.Duration {
	if w.Idle <= 0 {
		return defaultIdle
	}
	return w.Idle
}

// readLockToken is the content of that file; it changes with every owner.LockAll.
func (w *Wallet) readLockToken() string {
	text, err := coded.ReadFile(filepath.Join(w.dir, LockName), 64)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

// LockedMemory says why the system does not hold the pages of keys in memory; nil means that it
// does, at this moment and for this process.
func LockedMemory() error {
	s := guarded.New(1)
	defer s.Wipe()
	return s.Held
}
