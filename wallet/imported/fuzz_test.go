package imported

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/guarded"
)

// Whatever is imported: no panic, and no key derivation that takes more memory or time than the
// limits.
func FuzzImport(f *testing.F) {
	for _, file := range []string{"testdata/ozskr-keystore-v1.json", "testdata/ozskr-keystore-v2.json"} {
		text := must.Get(os.ReadFile(file))(f)
		f.Add(text)
	}
	f.Add([]byte(`{"version":3,"crypto":{"cipher":"aes-128-ctr","ciphertext":"` +
		string(bytes.Repeat([]byte("ab"), 32)) + `","cipherparams":{"iv":"` +
		string(bytes.Repeat([]byte("01"), 16)) +
		`"},"kdf":"scrypt","kdfparams":{"n":262144,"r":8,"p":1,"dklen":32,"salt":"00"},"mac":"` +
		string(bytes.Repeat([]byte("02"), 32)) + `"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := parseGeth(data); err == nil {
			require.Len(t, g.ciphertext, guarded.Size)
			require.LessOrEqual(t, 128*g.n*g.r, uint64(importMaxMemory))
			require.LessOrEqual(t, g.rounds, uint64(importMaxRounds))
			require.NotEqual(t, g.n == 0, g.rounds == 0)
		}
		if o, err := parseOzskr(data); err == nil {
			require.Len(t, o.sealed, 64+ozskrTag)
			for _, cost := range o.costs {
				require.LessOrEqual(t, 128*cost[0]*cost[1], uint64(importMaxMemory))
			}
		}
	})
}
