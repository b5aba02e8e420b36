package owner_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
	. "x402-wallet/wallet/owner"
)

func TestMarshalIsTheSpec(t *testing.T) {
	data, _ := keytest.Golden(t)
	ks := must.Get(keystore.Parse(data))(t)
	require.Equal(t, string(data), string(must.Get(Marshal(ks))(t)))
	require.Equal(t, `x402-wallet-keystore 1
kdf scrypt 16384 8 1 +Lcc/+0510BFLTDL29y8hWXTMYZymz5bn95WIWVDmBI=
cipher aes-256-gcm oYP9Jq5U66k+TU6m
key solana FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z
key evm 0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266
created 2026-11-21T18:30:00Z
`, string(ks.Canonical()))
	for _, of := range []string{"phrase", "account", "all"} {
		ks, _, _ := keytest.Opened(t, of)
		out := must.Get(Marshal(ks))(t)
		require.Equal(t, string(keytest.File(t, of)), string(out))
	}
}

// FuzzParse: whatever parses is said back in other words and parses to the same,
// so no two readings of one file exist.
func FuzzParse(f *testing.F) {
	data, _ := keytest.Golden(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		ks, err := keystore.Parse(data)
		if err != nil {
			keytest.RequireCode(t, err, coded.KeystoreCorrupt)
			return
		}
		if err := keystore.CheckScrypt(ks.N, ks.R, ks.P); err != nil {
			t.Fatal(err)
		}
		out, err := Marshal(ks)
		if err != nil {
			t.Fatal(err)
		}
		again, err := keystore.Parse(out)
		if err != nil {
			t.Fatalf("%v in what we wrote: %s", err, out)
		}
		if fmt.Sprint(ks) != fmt.Sprint(again) {
			t.Fatalf("read %v, then %v", ks, again)
		}
	})
}
