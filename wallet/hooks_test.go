package wallet

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"
)

// Outside is what packages that import this one do in its tests. outside_test.go, which may import them, sets
// it.
var Outside struct {
	Seeds    func(t testing.TB, phrase, passphrase string, account uint32) *Seeds
	Derive   func(phrase *Seeds, passphrase []byte, account uint32) (*Seeds, error)
	Words    func(entropy []byte) string
	Import   func(t testing.TB, format, path string) error
	FromFile func(path string) Passphrase
}

func privateKey(t testing.TB, chain string, secret []byte) PrivateKey {
	t.Helper()
	if chain == ChainSolana {
		return NewPrivateKey(chain, solanaAddressOf(ed25519.NewKeyFromSeed(secret)), secret)
	}
	public, err := publicKey((*[secretSize]byte)(secret))
	require.NoError(t, err)
	return NewPrivateKey(chain, evmAddressOf(public), secret)
}
