package recovery

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/record"
)

// Whatever is typed for a phrase, or lies in a keystore as one: no panic, no word of it in an error, and what
// is taken is what is written again.
func FuzzPhrase(f *testing.F) {
	f.Add([]byte(knownPhrase))
	f.Add([]byte("zoo\u3000Zoo\u00a0wrong ﷺ"))
	f.Add(bytes.Repeat([]byte{1}, record.Size))
	golden := make(record.Phrase, record.Size)
	golden.Set(bytes.Repeat([]byte{7}, 16), true, nil, record.Path{record.HardenedStep + 44, 0})
	f.Add([]byte(golden))
	f.Fuzz(func(t *testing.T, data []byte) {
		words, near, err := readWords(data)
		require.LessOrEqual(t, len(words), mostWords)
		require.LessOrEqual(t, len(near), mostNear)
		if entropy, wrong := entropyOf(words); err == nil && wrong == nil {
			require.Equal(t, words, wordsOf(entropy))
			again, _, err := readWords(spell(words))
			require.NoError(t, err)
			require.Equal(t, words, again)
		}
		if path, err := parsePath(string(data)); err == nil {
			require.Equal(t, path, must.Get(parsePath(path.String()))(t))
		}
		if len(data) == record.Size && record.Phrase(data).IsRight() {
			again := make(record.Phrase, record.Size)
			r := record.Phrase(data)
			again.Set(r.Entropy(), r.HasPassphrase(), r.SolanaPath(), r.EVMPath())
			require.Equal(t, data, []byte(again))
		}
	})
}
