package wallet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// solanaJSON is the golden seed and its public key as solana-keygen writes them.
func solanaJSON(t *testing.T) []int {
	var out []int
	for _, b := range unhex(t, goldenSolanaSeed+
		"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a") {
		out = append(out, int(b))
	}
	return out
}

func asJSON(t *testing.T, v any) string {
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

func TestImport(t *testing.T) {
	solana, err := importSolana(keyFile(t, asJSON(t, solanaJSON(t))+"\n"))
	require.NoError(t, err)
	require.Equal(t, ChainSolana, solana.Chain)
	evm, err := importRaw(keyFile(t, "0x"+goldenEVMSecret+"\n"), ChainEVM)
	require.NoError(t, err)
	require.Equal(t, ChainEVM, evm.Chain)

	dir := home(t)
	f := &fakeKDF{}
	w, err := Create(t.Context(), dir, value(testPassphrase),
		Options{derive: f.derive, Import: []PrivateKey{evm.PrivateKey, solana.PrivateKey}})
	require.NoError(t, err)
	requireAddresses(t, w, goldenSolana, goldenEVM)
	require.Equal(t, [32]byte{}, *SecretOf(solana.PrivateKey), "wiped")
	require.Equal(t, [32]byte{}, *SecretOf(evm.PrivateKey), "wiped")

	// the form tells the chain, and other wallets' base58 is read
	byForm, err := importRaw(keyFile(t, goldenEVMSecret), "")
	require.NoError(t, err)
	require.Equal(t, goldenEVM, byForm.Address)
	pair := unhex(t, goldenSolanaSeed+"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	for _, chain := range []string{"", ChainSolana} {
		byForm, err = importRaw(keyFile(t, base58(pair)+"\n"), chain)
		require.NoError(t, err)
		require.Equal(t, goldenSolana, byForm.Address)
	}
	_, err = importRaw(keyFile(t, base58(pair)), ChainEVM)
	requireCode(t, err, codeSetup)
	pair[63] ^= 1
	_, err = importRaw(keyFile(t, base58(pair)), "")
	require.Contains(t, requireCode(t, err, codeSetup).Error(), "public half")

	// one only: the other key is new
	seed, err := importRaw(keyFile(t, strings.ToUpper(goldenSolanaSeed)), ChainSolana)
	require.NoError(t, err)
	w, err = Create(t.Context(), home(t), value(testPassphrase),
		Options{derive: f.derive, Import: []PrivateKey{seed.PrivateKey}})
	require.NoError(t, err)
	require.Equal(t, goldenSolana, w.header.solana)
	require.NotEqual(t, goldenEVM, w.header.evm)
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
		"hex":                    goldenSolanaSeed,
		"nothing":                "",
		"two":                    asJSON(t, good) + asJSON(t, good),
		"too large":              asJSON(t, good) + strings.Repeat(" ", maxImport),
	} {
		t.Run("solana, "+name, func(t *testing.T) {
			file := keyFile(t, content)
			i, err := importSolana(file)
			require.Equal(t, Imported{}, i)
			e := requireCode(t, err, codeSetup)
			said := strings.ReplaceAll(e.Error(), file, "") // its name has numbers of its own
			require.NotRegexp(t, "157.{1,3}97", said, "no content in the error")
		})
	}
	for name, content := range map[string]string{
		"short": goldenEVMSecret[:63], "long": goldenEVMSecret + "0", "not hex": "z" + goldenEVMSecret[1:],
		"nothing": "", "0x": "0x", "0X": "0X" + goldenEVMSecret, "two lines": goldenEVMSecret + "\n\n",
		"inner space": " " + goldenEVMSecret,
	} {
		t.Run("hex, "+name, func(t *testing.T) {
			_, err := importRaw(keyFile(t, content), ChainEVM)
			e := requireCode(t, err, codeSetup)
			require.NotContains(t, e.Error(), "974bec")
			require.Contains(t, e.Error(), "it is not 64 hexadecimal digits",
				"which digit is wrong stays unsaid")
		})
	}
	_, err := Import(t.Context(), "key-file:bitcoin", keyFile(t, goldenEVMSecret), nil)
	requireCode(t, err, codeSetup)
	_, err = importSolana("/nowhere")
	requireCode(t, err, codeSetup)

	// zero and the order of the curve are hex, but no keys
	for _, scalar := range []string{strings.Repeat("0", 64),
		"fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"} {
		_, err := importRaw(keyFile(t, scalar), ChainEVM)
		requireCode(t, err, codeSetup)
	}
}
