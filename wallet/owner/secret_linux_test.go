package owner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/keystore/keytest"
	. "x402-wallet/wallet/owner"
)

// What a keystore encrypts lies in locked memory.
func TestThePlaintextIsLockedIntoMemory(t *testing.T) {
	keytest.MustLock(t)
	_, k, _ := keytest.Opened(t, "all")
	plain := Plaintext(k)
	require.Equal(t, keytest.Plaintext(k), string(plain.Bytes))
	flags := keytest.PageFlags(t, plain.Bytes)
	require.Contains(t, flags, "lo")
	require.Contains(t, flags, "dd")
}
