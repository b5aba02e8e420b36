package channel

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"
)

// signer is a key of somebody else's: that of the vectors' service.
type signer struct {
	key  Key
	sign func(message []byte) []byte
}

func newSigner(t *testing.T) signer {
	v := readVectors(t)
	private := ed25519.NewKeyFromSeed(unhex(t,
		"ee2bf8098ea5dafb95ade63354db3ad99fbcee1a1bc8546cf89db4ef35b45913"))
	k := Key{Fragment: "key-1", Type: ed25519Key, Multibase: v.Parties["service"].Key}
	require.True(t, keysOf{}.Verify(k, []byte("x"), ed25519.Sign(private, []byte("x"))))
	return signer{k, func(message []byte) []byte { return ed25519.Sign(private, message) }}
}
