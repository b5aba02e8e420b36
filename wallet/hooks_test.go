package wallet

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// Outside is what packages that import this one do in its tests. outside_test.go, which may import them, sets
// it.
var Outside struct {
	Seeds    func(t testing.TB, phrase, passphrase string, account uint32) *guarded.Seeds
	Derive   func(phrase *guarded.Seeds, passphrase []byte, account uint32) (*guarded.Seeds, error)
	Import   func(t testing.TB, format, path string) error
	FromFile func(path string) Passphrase
	// Owns reports whether a key of a DID document is an account's.
	Owns func(a *Account, keyType, multibase string) bool
}

func privateKey(t testing.TB, chain string, secret []byte) guarded.PrivateKey {
	t.Helper()
	if chain == ChainSolana {
		return guarded.NewPrivateKey(chain, curve.SolanaAddressOf(ed25519.NewKeyFromSeed(secret)), secret)
	}
	public, err := curve.PublicKey((*[guarded.Size]byte)(secret))
	require.NoError(t, err)
	return guarded.NewPrivateKey(chain, curve.EVMAddressOf(public), secret)
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
