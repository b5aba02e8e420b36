package recovery

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/gagliardetto/solana-go/bip39"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/record"
)

// The vectors of BIP-39: entropy, phrase, and its seed with the passphrase TREZOR.
func TestBIP39Vectors(t *testing.T) {
	text := must.Get(os.ReadFile("testdata/bip39-vectors.json"))(t)
	vectors := must.JSON[[][3]string](text)(t)
	require.Len(t, vectors, 24)
	for _, v := range vectors {
		words := wordsOf(keytest.Unhex(t, v[0]))
		require.Equal(t, v[1], string(spell(words)))
		read, near, err := readWords([]byte("  " + strings.ToUpper(strings.ReplaceAll(v[1], " ",
			"\t\r\n")) + "\n"))
		require.NoError(t, err)
		require.Empty(t, near)
		require.Equal(t, words, read)
		entropy := must.Get(entropyOf(read))(t)
		require.Equal(t, v[0], hex.EncodeToString(entropy))
		seed := must.Get(bip39Seed(words, []byte("TREZOR")))(t)
		require.Equal(t, v[2], hex.EncodeToString(seed))
	}
}

// Another implementation reads what this one writes, whatever the length, and with any passphrase.
func TestBIP39AgreesWithAnotherImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{16, 20, 24, 28, 32}).Draw(t, "size")
		entropy := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "entropy")
		words := wordsOf(entropy)
		text := string(spell(words))
		require.Equal(t, must.Get(bip39.NewMnemonic(entropy))(t), text)
		require.Equal(t, entropy, must.Get(entropyOf(words))(t))
	})
	for _, passphrase := range []string{"", "TREZOR", "Straße", "x y"} {
		entropy := make([]byte, 32)
		_, _ = rand.Read(entropy)
		seed := must.Get(bip39Seed(wordsOf(entropy), []byte(passphrase)))(t)
		require.Equal(t, bip39.NewSeed(string(spell(wordsOf(entropy))), passphrase), seed)
	}
}

// The passphrase counts in NFKD, whichever keyboard typed it (BIP-39).
func TestBIP39PassphraseIsNormalised(t *testing.T) {
	words := wordsOf(make([]byte, 16))
	composed := must.Get(bip39Seed(words, []byte("m\u00e9tr\u00f3 \ufb01")))(t)
	require.Equal(t, composed, must.Get(bip39Seed(words, []byte("me\u0301tro\u0301 fi")))(t))
	require.NotEqual(t, composed, must.Get(bip39Seed(words, []byte("metro fi")))(t))
}

func TestEnglishList(t *testing.T) {
	require.Len(t, english(), 2048)
	require.IsIncreasing(t, english(), "it is searched by halves")
	heads := map[string]bool{}
	for _, word := range english() {
		head := word[:min(4, len(word))]
		require.False(t, heads[head], "%s: four letters say which word it is", word)
		heads[head] = true
		require.LessOrEqual(t, len(word), len("abstract"))
	}
}

// One word exchanged, or two swapped, or some left out: the checksum finds it in 15 of 16 cases and more, and
// a phrase of another length is never one.
func TestWrongPhrases(t *testing.T) {
	words := wordsOf(keytest.Unhex(t, strings.Repeat("7f", 32)))
	found := 0
	for i := range words {
		other := append([]int{}, words...)
		other[i] = (other[i] + 1) % 2048
		if _, err := entropyOf(other); err != nil {
			require.ErrorIs(t, err, errPhraseChecksum)
			found++
		}
	}
	require.Greater(t, found, 20, "of 24, by a checksum of 8 bits")
	for n := range 30 {
		if isPhraseLength(n) {
			continue
		}
		require.ErrorIs(t, must.Err(entropyOf(make([]int, n))), errPhraseLength)
	}
}

// An error tells where, and never what.
func TestUnknownWords(t *testing.T) {
	for text, want := range map[string]struct {
		at   int
		near string
	}{
		"abandon abiliti able":           {1, "ability"},
		"zoo zoo zooo":                   {2, "zoo"},
		"aband ability":                  {0, "abandon"},
		"abandno":                        {0, "abandon"},
		"zoo naïve":                      {1, "naive"},
		"zoo qqqqqqqqqqqq":               {1, ""},
		"zoo " + strings.Repeat("x", 99): {1, ""},
		"abandon, ability":               {0, "abandon"},
	} {
		words, near, err := readWords([]byte(text))
		require.Equal(t, unknownWord(want.at), err, text)
		require.Len(t, words, want.at)
		require.LessOrEqual(t, len(near), mostNear)
		if want.near == "" {
			require.Empty(t, near)
		} else {
			require.Contains(t, near, want.near, text)
		}
		require.NotContains(t, err.Error(), strings.Fields(text)[want.at])
	}
	_, _, err := readWords([]byte(strings.Repeat("zoo ", 25)))
	require.ErrorIs(t, err, errPhraseLength)
}

func TestEditDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{{"", "abc"}: 3, {"abc", "abc"}: 0, {"acb", "abc"}: 1, {"ab",
		"abc"}: 1,
		{"axc", "abc"}: 1, {"cab", "abc"}: 2} {
		require.Equal(t, want, editDistance(pair[0], pair[1]), pair)
	}
}

// xprv reads the private key and the chain code out of BIP-32's own form of them.
func xprv(t *testing.T, text string) extendedKey {
	t.Helper()
	n := new(big.Int)
	for _, c := range text {
		n.Mul(n, big.NewInt(58))
		n.Add(n, big.NewInt(int64(strings.IndexRune(base58Alphabet, c))))
	}
	raw := n.FillBytes(make([]byte, 82))
	require.Equal(t, "0488ade4", hex.EncodeToString(raw[:4]))
	var x extendedKey
	copy(x[:guarded.Size], raw[46:78])
	copy(x[guarded.Size:], raw[13:45])
	return x
}

// hdVectors are the test vectors 1 to 4 of BIP-32, of which 3 and 4 have leading zeros in their keys, and
// those of SLIP-10 for Ed25519.
func hdVectors(t *testing.T) (v struct {
	BIP32  []struct{ Seed, Path, Xprv string }
	SLIP10 []struct{ Seed, Path, Chain, Key string }
}) {
	t.Helper()
	require.NoError(t, json.Unmarshal(must.Get(os.ReadFile("testdata/hd-vectors.json"))(t), &v))
	require.Len(t, v.BIP32, 9)
	require.Len(t, v.SLIP10, 5)
	return v
}

// pathOf is a path of a vector; "" is that of the master key, which the wallet takes for none.
func pathOf(t *testing.T, text string) record.Path {
	t.Helper()
	if text == "" {
		return record.Path{}
	}
	return must.Get(parsePath(text))(t)
}

func TestBIP32Vectors(t *testing.T) {
	for _, v := range hdVectors(t).BIP32 {
		got := must.Get(walkEVM(keytest.Unhex(t, v.Seed), pathOf(t, v.Path)))(t)
		require.Equal(t, xprv(t, v.Xprv), got, "%s %s", v.Seed, v.Path)
	}
}

func TestSLIP10Vectors(t *testing.T) {
	for _, v := range hdVectors(t).SLIP10 {
		got := walkSolana(keytest.Unhex(t, v.Seed), pathOf(t, v.Path))
		require.Equal(t, v.Key+v.Chain, hex.EncodeToString(got[:]), v.Path)
	}
}

func TestPaths(t *testing.T) {
	p := StandardPaths(0)
	require.Equal(t, Paths{Solana: "m/44'/501'/0'/0'", EVM: "m/44'/60'/0'/0/0"}, p)
	require.Equal(t, Paths{Solana: "m/44'/501'/7'/0'", EVM: "m/44'/60'/0'/0/7"}, StandardPaths(7))
	require.NoError(t, p.Put("", "m/44h/501H/3'"))
	require.NoError(t, p.Put("", "m/44'/60'/2'/0/0"))
	require.Equal(t, Paths{Solana: "m/44'/501'/3'", EVM: "m/44'/60'/2'/0/0"}, p)
	require.NoError(t, p.Put(wallet.ChainSolana, record.SeedPath))
	require.NoError(t, p.Put(wallet.ChainEVM, "m/0"))
	require.Equal(t, Paths{Solana: "seed", EVM: "m/0"}, p)
	for _, wrong := range [][2]string{
		{"", "m/44'/0'/0'"}, {"", "seed"}, {wallet.ChainEVM, "seed"}, {wallet.ChainSolana, "m/44'/501'/0'/0"},
		{"",
			"44'/60'/0'"},
		{"", "m"}, {"", "m/"}, {"", ""}, {"", "m/44'/60'/0'//0"}, {"", "m/44''/60'"}, {"", "m/44'/60'/-1"},
		{"", "m/44'/60'/+1"}, {"", "m/44'/60'/01"}, {"", "m/44'/60'/2147483648"}, {"",
			"m/44'/60'/4294967296"},
		{"", "m/44'/60'/0'/0/0/0/0"}, {"", "M/44'/60'/0'/0/0"}, {"", "m/44'/60'/0x0"}, {"", "m/44'/60'/ 0"},
		{"bitcoin", "m/44'/60'/0'/0/0"}, {"", "m/44'/60'/" + strings.Repeat("0", 200)},
	} {
		require.Error(t, p.Put(wrong[0], wrong[1]), "%q", wrong)
	}
}

const base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
