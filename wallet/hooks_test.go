package wallet

import (
	"context"
	"crypto/sha256"
	"testing"

	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// Creation is owner.Options.
type Creation struct {
	KDF    keystore.KDF
	Import []guarded.PrivateKey
	Phrase *guarded.Seeds
}

// Outside is what packages that import this one do in its tests. outside_test.go, which may import them, sets
// it.
var Outside struct {
	Create     func(ctx context.Context, dir string, passphrase Passphrase, o Creation) (*Wallet, error)
	AddAccount func(ctx context.Context, w *Wallet, typed Passphrase, name string,
		index uint32) (AccountInfo, error)
	ChangePassphrase func(ctx context.Context, w *Wallet, old, fresh Passphrase) error
	CheckPassphrase  func(p []byte) error
	HasPhrase        func(w *Wallet) (bool, error)
	LockAll          func(dir string) error
	Seeds            func(t testing.TB, phrase, passphrase string, account uint32) *guarded.Seeds
	Import           func(t testing.TB, format, path string) error
	FromFile         func(path string) Passphrase
	// Owns reports whether a key of a DID document is an account's.
	Owns func(a *Account, keyType, multibase string) bool
}

// The types of keys in a DID document, as package nuwa has them.
const (
	ed25519Key   = "Ed25519VerificationKey2020"
	secp256k1Key = "EcdsaSecp256k1VerificationKey2019"
)

// signChannel signs as package nuwa does, behind its checks.
func (a *Account) signChannel(ctx context.Context, keyType string, message []byte) (sig [64]byte, err error) {
	o := Order{Chain: ChainSolana, Kind: Channel, Payload: message}
	if keyType == secp256k1Key {
		o.Chain, o.Digest = ChainEVM, sha256.Sum256(message)
	}
	signature, err := a.SignChannel(ctx, guarded.GiveLeave(), o)
	copy(sig[:], signature)
	return sig, err
}
