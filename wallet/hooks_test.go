package wallet

import (
	"crypto/ed25519"
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
