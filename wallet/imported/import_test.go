package imported

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/owner"
)

// solanaJSON is the golden seed and its public key as solana-keygen writes them.
func solanaJSON(t *testing.T) []int {
	var out []int
	for _, b := range keytest.Unhex(t, keytest.SolanaSeed+
		"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a") {
		out = append(out, int(b))
	}
	return out
}

func asJSON(t *testing.T, v any) string {
	out := must.Get(json.Marshal(v))(t)
	return string(out)
}

func TestImport(t *testing.T) {
	solana := must.Get(importSolana(keytest.KeyFile(t, asJSON(t, solanaJSON(t))+"\n")))(t)
	require.Equal(t, wallet.ChainSolana, solana.Chain)
	evm := must.Get(importRaw(keytest.KeyFile(t, "0x"+keytest.EVMSecret+"\n"), wallet.ChainEVM))(t)
	require.Equal(t, wallet.ChainEVM, evm.Chain)

	dir := keytest.Home(t)
	w := must.Get(owner.Create(t.Context(), dir, wallet.FromValue(keytest.Passphrase),
		owner.Options{N: 1 << 14, Import: []guarded.PrivateKey{evm.PrivateKey, solana.PrivateKey}}))(t)
	solanaAddress, evmAddress := w.Addresses()
	require.Equal(t, [2]string{keytest.Solana, keytest.EVM}, [2]string{solanaAddress, evmAddress})
	require.Equal(t, [32]byte{}, *guarded.SecretOf(solana.PrivateKey), "wiped")
	require.Equal(t, [32]byte{}, *guarded.SecretOf(evm.PrivateKey), "wiped")

	// the form tells the chain, and other wallets' base58 is read
	byForm := must.Get(importRaw(keytest.KeyFile(t, keytest.EVMSecret), ""))(t)
	require.Equal(t, keytest.EVM, byForm.Address)
	pair := keytest.Unhex(t,
		keytest.SolanaSeed+"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	for _, chain := range []string{"", wallet.ChainSolana} {
		byForm = must.Get(importRaw(keytest.KeyFile(t, curve.Base58(pair)+"\n"), chain))(t)
		require.Equal(t, keytest.Solana, byForm.Address)
	}
	_, err := importRaw(keytest.KeyFile(t, curve.Base58(pair)), wallet.ChainEVM)
	keytest.RequireCode(t, err, coded.SetupFailed)
	pair[63] ^= 1
	_, err = importRaw(keytest.KeyFile(t, curve.Base58(pair)), "")
	require.Contains(t, keytest.RequireCode(t, err, coded.SetupFailed).Error(), "public half")

	// one only: the other key is new
	seed, err := importRaw(keytest.KeyFile(t, strings.ToUpper(keytest.SolanaSeed)), wallet.ChainSolana)
	require.NoError(t, err)
	w = must.Get(owner.Create(t.Context(), keytest.Home(t), wallet.FromValue(keytest.Passphrase),
		owner.Options{N: 1 << 14, Import: []guarded.PrivateKey{seed.PrivateKey}}))(t)
	solanaAddress, evmAddress = w.Addresses()
	require.Equal(t, keytest.Solana, solanaAddress)
	require.NotEqual(t, keytest.EVM, evmAddress)
}

func TestImportRefuses(t *testing.T) {
	good := solanaJSON(t)
	otherPublic := append([]int{}, good...)
	otherPublic[63] ^= 1
	negative := append([]int{}, good...)
	negative[3] = -1
	large := append([]int{}, good...)
	large[3] = 256
	for name, content := range map[string]string{
		"public half of another": asJSON(t, otherPublic),
		"a negative number":      asJSON(t, negative),
		"256":                    asJSON(t, large),
		"a fraction":             strings.Replace(asJSON(t, good), "157", "157.5", 1),
		"text in it":             strings.Replace(asJSON(t, good), "157", `"157"`, 1),
		"null in it":             strings.Replace(asJSON(t, good), "157", "null", 1),
		"63 numbers":             asJSON(t, good[:63]),
		"seed only":              asJSON(t, good[:32]),
		"65 numbers":             asJSON(t, append(append([]int{}, good...), 1)),
		"base64":                 `"nWGxne/9WmC6hEr0ku"`,
		"object":                 `{"secretKey":[]}`,
		"hex":                    keytest.SolanaSeed,
		"nothing":                "",
		"two":                    asJSON(t, good) + asJSON(t, good),
		"too large":              asJSON(t, good) + strings.Repeat(" ", maxImport),
	} {
		t.Run("solana, "+name, func(t *testing.T) {
			file := keytest.KeyFile(t, content)
			i, err := importSolana(file)
			require.Equal(t, Key{}, i)
			e := keytest.RequireCode(t, err, coded.SetupFailed)
			said := strings.ReplaceAll(e.Error(), file, "") // its name has numbers of its own
			require.NotRegexp(t, "157.{1,3}97", said, "no content in the error")
		})
	}
	for name, content := range map[string]string{
		"short": keytest.EVMSecret[:63], "long": keytest.EVMSecret + "0", "not hex": "z" +
			keytest.EVMSecret[1:],
		"nothing": "", "0x": "0x", "0X": "0X" + keytest.EVMSecret, "two lines": keytest.EVMSecret +
			"\n\n",
		"inner space": " " + keytest.EVMSecret,
	} {
		t.Run("hex, "+name, func(t *testing.T) {
			_, err := importRaw(keytest.KeyFile(t, content), wallet.ChainEVM)
			e := keytest.RequireCode(t, err, coded.SetupFailed)
			require.NotContains(t, e.Error(), "974bec")
			require.Contains(t, e.Error(), "it is not 64 hexadecimal digits",
				"which digit is wrong stays unsaid")
		})
	}
	_, err := Read(t.Context(), "key-file:bitcoin", keytest.KeyFile(t, keytest.EVMSecret), nil)
	keytest.RequireCode(t, err, coded.SetupFailed)
	keytest.RequireCode(t, must.Err(importSolana("/nowhere")), coded.SetupFailed)

	// zero and the order of the curve are hex, but no keys
	for _, scalar := range []string{strings.Repeat("0", 64),
		"fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"} {
		_, err := importRaw(keytest.KeyFile(t, scalar), wallet.ChainEVM)
		keytest.RequireCode(t, err, coded.SetupFailed)
	}
}

// A key prints as [redacted], whichever way.
func TestRedaction(t *testing.T) {
	key := must.Get(importRaw(keytest.KeyFile(t, keytest.EVMSecret), wallet.ChainEVM))(t)
	for _, v := range []any{key, &key} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			require.Equal(t, guarded.Redaction, fmt.Sprintf(verb, v), verb)
		}
	}
}
