package wallet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/curve"
)

// A fault in memory, at the worst place: what comes out of it is not given away.
func TestAFaultySignatureIsDropped(t *testing.T) {
	w := goldenWallet(t)
	require.NoError(t, w.Unlock(t.Context()))
	w.keys.EVM.Secret[31] ^= 1
	sig, err := w.signDigest(t.Context(), [32]byte{1})
	require.ErrorIs(t, err, curve.ErrFaulty)
	require.Equal(t, [64]byte{}, [64]byte(sig[:64]))
	channel, err := w.signChannel(t.Context(), secp256k1Key, []byte("x"))
	require.ErrorIs(t, err, curve.ErrFaulty)
	require.Equal(t, [64]byte{}, channel)

	for _, at := range []int{0, 31, 32, 63} { // of its seed, of the public key
		w.keys.Solana[at] ^= 1
		solana, err := w.signMessage(t.Context(), []byte("x"))
		require.ErrorIs(t, err, curve.ErrFaulty, at)
		require.Equal(t, [64]byte{}, solana)
		channel, err := w.signChannel(t.Context(), ed25519Key, []byte("x"))
		require.ErrorIs(t, err, curve.ErrFaulty, at)
		require.Equal(t, [64]byte{}, channel)
		w.keys.Solana[at] ^= 1
	}
	must.Get(w.signMessage(t.Context(), []byte("x")))(t)
}
