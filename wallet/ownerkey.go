package wallet

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"sync"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// The owner of a fleet signs what its machines have to believe and must not be able to make: the rules,
// each yes, each lift, session and enrolment. The key for that lies in the encrypted part of the owner's
// keystore alone, from the first time it is needed. It is no part of an unlocked wallet: whatever
// unlocks a wallet without a person, nothing is signed with it unless the passphrase is given for that.

// Purpose says what a statement of the owner is. What was signed for one is nothing for another.
type Purpose string

// The purposes, and with them all that the owner's key signs.
const (
	FleetBundle    Purpose = "bundle"
	FleetApproval  Purpose = "approval"
	FleetLift      Purpose = "lift"
	FleetSession   Purpose = "session"
	FleetEnrolment Purpose = "enrolment"
)

// MaxStatement bounds what is signed, in bytes: a config.toml of 256 KiB, twice as long in JSON, and
// the rest of a bundle.
const MaxStatement = 640 << 10

// Message is what is signed for a statement: "x402-wallet fleet <purpose> v1\n" and its bytes.
func (p Purpose) Message(statement []byte) []byte {
	return append([]byte("x402-wallet fleet "+string(p)+" v1\n"), statement...)
}

func (p Purpose) isKnown() bool {
	switch p {
	case FleetBundle, FleetApproval, FleetLift, FleetSession, FleetEnrolment:
		return true
	}
	return false
}

// OwnerKey is the owner's key, to sign with until it is closed. It prints as [redacted].
type OwnerKey struct {
	guarded.Redacted
	public ed25519.PublicKey

	mu      sync.Mutex
	memory  *guarded.Memory
	private ed25519.PrivateKey // in memory; nil once it is closed
	seals   []byte             // in memory, behind it: what the wallet seals with
}

// OwnerKey asks for the passphrase and returns the owner's key, which the caller closes. It does not
// unlock the wallet. Errors: those of [Wallet.Unlock]; SETUP_FAILED where the keystore has none.
func (w *Wallet) OwnerKey(ctx context.Context, typed Passphrase) (*OwnerKey, error) {
	k, err := w.unlockOnce(ctx, []Passphrase{typed})
	if err != nil {
		return nil, err
	}
	defer k.wipe()
	if !k.hasOwner() {
		e := coded.Setup("sign for the fleet", errors.New("this keystore has no owner's key"))
		e.Advice = "run: x402-wallet policy seal --fleet"
		return nil, e
	}
	return newOwnerKey(k), nil
}

// MakeOwnerKey is OwnerKey for a keystore that may have none yet: then it gets one, under the same
// passphrase, and made is true. However it ends, there is exactly one keystore, and the passphrase
// opens it.
func (w *Wallet) MakeOwnerKey(ctx context.Context, typed Passphrase) (key *OwnerKey, made bool, err error) {
	o, err := w.openForChange(ctx, typed)
	if err != nil {
		return nil, false, err
	}
	defer o.wipe()
	k := o.keys
	if k.hasOwner() {
		return newOwnerKey(k), false, nil
	}
	if _, err := io.ReadFull(rand.Reader, k.owner[:]); err != nil {
		return nil, false, coded.Setup("make the owner's key", err)
	}
	if err := w.rewrite(k, o.passphrase.Bytes, o.ks, o.before, rand.Reader); err != nil {
		e := coded.Setup("put the owner's key into the keystore", err)
		e.Advice = "the passphrase is what it was; try again"
		return nil, false, e
	}
	return newOwnerKey(k), true, nil
}

// HasOwnerKey reports whether the keystore holds the owner's key. It is not unlocked for that.
func (w *Wallet) HasOwnerKey() (bool, error) {
	ks, _, err := readKeystore(w.dir)
	return err == nil && ks.holds.owner, err
}

// WithoutOwnerKey is the keystore for another machine of the fleet: the same keys under the same passphrase,
// but for the owner's and those of other accounts, and without the phrase that they come from.
func (w *Wallet) WithoutOwnerKey(ctx context.Context, typed Passphrase) (keystore []byte, err error) {
	o, err := w.openForChange(ctx, typed)
	if err != nil {
		return nil, err
	}
	defer o.wipe()
	k := o.keys
	k.dropOwner()
	k.dropPhrase()
	k.dropAccounts()
	w.deriving.Lock()
	defer w.deriving.Unlock()
	fresh, err := encrypt(k, nil, o.passphrase.Bytes, o.ks.n, o.ks.created, w.derive, rand.Reader)
	if err != nil {
		return nil, coded.Setup("encrypt the keys for another machine", err)
	}
	data, err := fresh.marshal()
	if err == nil {
		err = opensWith(o.passphrase.Bytes, w.derive, k)(data)
	}
	if err != nil {
		return nil, coded.Setup("encrypt the keys for another machine", err)
	}
	return data, nil
}

// hasOwner reports whether k has the owner's key: a random seed is not zero.
func (k *keys) hasOwner() bool { return *k.owner != [guarded.Size]byte{} }

// dropOwner wipes the owner's key alone, as of keys that are held to pay with.
func (k *keys) dropOwner() { clear(k.owner[:]) }

// newOwnerKey copies the owner's key out of k.
func newOwnerKey(k *keys) *OwnerKey {
	memory := guarded.New(ed25519.PrivateKeySize + len(k.seal))
	key := &OwnerKey{memory: memory, private: memory.Bytes[:ed25519.PrivateKeySize:ed25519.PrivateKeySize],
		seals: memory.Bytes[ed25519.PrivateKeySize:]}
	guarded.WithCleanStack(func() {
		whole := ed25519.NewKeyFromSeed(k.owner[:])
		copy(key.private, whole)
		clear(whole)
	})
	copy(key.seals, k.seal[:])
	key.public = bytes.Clone(key.private[guarded.Size:])
	return key
}

// Public is the public key, by which everybody checks what it signed.
func (k *OwnerKey) Public() ed25519.PublicKey { return k.public }

// Sign signs a statement for a purpose, as [Purpose.Message] says, by Ed25519 (RFC 8032, pure). The same
// statement has the same signature.
func (k *OwnerKey) Sign(purpose Purpose, statement []byte) ([]byte, error) {
	switch {
	case !purpose.isKnown():
		return nil, coded.Unsupported("the owner of a fleet signs nothing as %.40q", string(purpose))
	case len(statement) == 0 || len(statement) > MaxStatement:
		return nil, coded.Unsupported("a statement of %d bytes; it has 1 to %d", len(statement), MaxStatement)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.private == nil {
		return nil, coded.Locked("the owner's key is closed")
	}
	sig, err := curve.SignEd25519(k.private, purpose.Message(statement))
	if err != nil {
		return nil, err
	}
	return sig[:], nil
}

// Seal is [Wallet.Seal] by the wallet that the owner's key is in.
func (k *OwnerKey) Seal(purpose string, data []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.private == nil {
		return nil, coded.Locked("the owner's key is closed")
	}
	return macOf(k.seals, purpose, data), nil
}

// Close wipes the key.
func (k *OwnerKey) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.memory.Wipe()
	k.memory, k.private, k.seals = nil, nil, nil
}
