package record

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// phraseRecords are right only as they are written: a byte anywhere else is found.
func TestPhraseRecord(t *testing.T) {
	record := make(Phrase, Size)
	require.False(t, record.IsThere() || record.IsRight())
	for size := 16; size <= 32; size += 4 {
		for path, solana := range map[string]Path{SeedPath: nil, "m/0'": {HardenedStep},
			"m/1'/2'/3'/4'/5'/2147483647'": {HardenedStep + 1, HardenedStep + 2, HardenedStep + 3,
				HardenedStep + 4,
				HardenedStep + 5, 1<<32 - 1}} {

			record.Set(bytes.Repeat([]byte{1}, size), size == 32, solana, Path{1, 2})
			require.True(t, record.IsThere() && record.IsRight())
			require.Equal(t, path, record.SolanaPath().String())
			require.Equal(t, size == 32, record.HasPassphrase())
			require.Len(t, record.Entropy(), size)
		}
	}
	for i, b := range map[int]byte{0: 17, 1: 2, 34: 7, 59: 0xff, 70: 1, 83: 1} {
		wrong := bytes.Clone(record)
		wrong[i] = b
		require.False(t, Phrase(wrong).IsRight(), "byte %d", i)
	}
	record.Set(bytes.Repeat([]byte{1}, 16), false, Path{HardenedStep}, Path{0})
	record[atSolanaPath+1] = 0 // a step that is not hardened
	require.False(t, record.IsRight())
}
