package wallet

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// phraseRecords are right only as they are written: a byte anywhere else is found.
func TestPhraseRecord(t *testing.T) {
	record := make(phraseRecord, phraseSize)
	require.False(t, record.isThere() || record.isRight())
	for size := 16; size <= 32; size += 4 {
		for _, path := range []string{SeedPath, "m/0'", "m/1'/2'/3'/4'/5'/2147483647'"} {
			solana, err := parsePath(path)
			require.NoError(t, err)
			record.set(bytes.Repeat([]byte{1}, size), size == 32, solana, derivation{1, 2})
			require.True(t, record.isThere() && record.isRight())
			require.Equal(t, path, record.solanaPath().String())
			require.Equal(t, size == 32, record.hasPassphrase())
			require.Len(t, record.entropy(), size)
		}
	}
	for i, b := range map[int]byte{0: 17, 1: 2, 34: 7, 59: 0xff, 70: 1, 83: 1} {
		wrong := bytes.Clone(record)
		wrong[i] = b
		require.False(t, phraseRecord(wrong).isRight(), "byte %d", i)
	}
	record.set(bytes.Repeat([]byte{1}, 16), false, derivation{hardenedStep}, derivation{0})
	record[atSolanaPath+1] = 0 // a step that is not hardened
	require.False(t, record.isRight())
}
