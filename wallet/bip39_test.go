package wallet

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
)

// The vectors of BIP-39: entropy, phrase, and the seed with the passphrase TREZOR.
func TestBIP39Vectors(t *testing.T) {
	text, err := os.ReadFile("testdata/bip39-vectors.json")
	require.NoError(t, err)
	var vectors [][3]string
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Len(t, vectors, 24)
	for _, v := range vectors {
		words := wordsOf(unhex(t, v[0]))
		require.Equal(t, v[1], string(spell(words)))
		read, near, err := readWords([]byte("  " + strings.ToUpper(strings.ReplaceAll(v[1], " ", "\t\r\n")) + "\n"))
		require.NoError(t, err)
		require.Empty(t, near)
		require.Equal(t, words, read)
		entropy, err := entropyOf(read)
		require.NoError(t, err)
		require.Equal(t, v[0], hex.EncodeToString(entropy))
		seed, err := bip39Seed(words, []byte("TREZOR"))
		require.NoError(t, err)
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
		theirs, err := bip39.NewMnemonic(entropy)
		require.NoError(t, err)
		require.Equal(t, theirs, text)
		back, err := entropyOf(words)
		require.NoError(t, err)
		require.Equal(t, entropy, back)
	})
	for _, passphrase := range []string{"", "TREZOR", "Straße", "x y"} {
		entropy := make([]byte, 32)
		_, _ = rand.Read(entropy)
		seed, err := bip39Seed(wordsOf(entropy), []byte(passphrase))
		require.NoError(t, err)
		require.Equal(t, bip39.NewSeed(string(spell(wordsOf(entropy))), passphrase), seed)
	}
}

// The passphrase counts in NFKD, whichever keyboard typed it (BIP-39).
func TestBIP39PassphraseIsNormalised(t *testing.T) {
	words := wordsOf(make([]byte, 16))
	composed, err := bip39Seed(words, []byte("m\u00e9tr\u00f3 \ufb01"))
	require.NoError(t, err)
	decomposed, err := bip39Seed(words, []byte("me\u0301tro\u0301 fi"))
	require.NoError(t, err)
	require.Equal(t, composed, decomposed)
	other, err := bip39Seed(words, []byte("metro fi"))
	require.NoError(t, err)
	require.NotEqual(t, composed, other)
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

// One word exchanged, or two swapped, or some left out: the checksum finds it in 15 of 16 cases and more, and a
// phrase of another length is never one.
func TestWrongPhrases(t *testing.T) {
	words := wordsOf(unhex(t, strings.Repeat("7f", 32)))
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
		_, err := entropyOf(make([]int, n))
		require.ErrorIs(t, err, errPhraseLength)
	}
}

// An error tells where, and never what.
func TestUnknownWords(t *testing.T) {
	for text, want := range map[string]struct {
		at   int
		near string
	}{
		"abandon abilty able":            {1, "ability"},
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
	for pair, want := range map[[2]string]int{{"", "abc"}: 3, {"abc", "abc"}: 0, {"acb", "abc"}: 1, {"ab", "abc"}: 1,
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
	copy(x[:secretSize], raw[46:78])
	copy(x[secretSize:], raw[13:45])
	return x
}

const seedOfVector2 = "fffcf9f6f3f0edeae7e4e1dedbd8d5d2cfccc9c6c3c0bdbab7b4b1aeaba8a5a29f9c999693908d8a8784817e7b7875" +
	"726f6c696663605d5a5754514e4b484542"

// The test vectors 1 to 4 of BIP-32; 3 and 4 have leading zeros in their keys.
func TestBIP32Vectors(t *testing.T) {
	for _, v := range []struct{ seed, path, want string }{
		{"000102030405060708090a0b0c0d0e0f", "", "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNK" +
			"mPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"},
		{"000102030405060708090a0b0c0d0e0f", "m/0'", "xprv9uHRZZhk6KAJC1avXpDAp4MDc3sQKNxDiPvvkX8Br5ngLNv1TxvUxt4cV1" +
			"rGL5hj6KCesnDYUhd7oWgT11eZG7XnxHrnYeSvkzY7d2bhkJ7"},
		{"000102030405060708090a0b0c0d0e0f", "m/0h/1", "xprv9wTYmMFdV23N2TdNG573QoEsfRrWKQgWeibmLntzniatZvR9BmLnvSxq" +
			"u53Kw1UmYPxLgboyZQaXwTCg8MSY3H2EU4pWcQDnRnrVA1xe8fs"},
		{"000102030405060708090a0b0c0d0e0f", "m/0H/1/2H/2/1000000000", "xprvA41z7zogVVwxVSgdKUHDy1SKmdb533PjDz7J6N6" +
			"mV6uS3ze1ai8FHa8kmHScGpWmj4WggLyQjgPie1rFSruoUihUZREPSL39UNdE3BBDu76"},
		{seedOfVector2, "", "xprv9s21ZrQH143K31xYSDQpPDxsXRTUcvj2iNHm5NUtrGiGG5e2DtALGdso3pGz6ssrdK4PFmM8NSpSBHNqPqm" +
			"55Qn3LqFtT2emdEXVYsCzC2U"},
		{seedOfVector2, "m/0", "xprv9vHkqa6EV4sPZHYqZznhT2NPtPCjKuDKGY38FBWLvgaDx45zo9WQRUT3dKYnjwih2yJD9mkrocEZXo1" +
			"ex8G81dwSM1fwqWpWkeS3v86pgKt"},
		{seedOfVector2, "m/0/2147483647'/1/2147483646'/2", "xprvA2nrNbFZABcdryreWet9Ea4LvTJcGsqrMzxHx98MMrotbir7yrK" +
			"CEXw7nadnHM8Dq38EGfSh6dqA9QWTyefMLEcBYJUuekgW4BYPJcr9E7j"},
		{"4b381541583be4423346c643850da4b320e46a87ae3d2a4e6da11eba819cd4acba45d239319ac14f863b8d5ab5a0d0c64d2e8a1e7d1457" +
			"df2e5a3c51c73235be", "m/0'", "xprv9uPDJpEQgRQfDcW7BkF7eTya6RPxXeJCqCJGHuCJ4GiRVLzkTXBAJMu2qaMWPrS7AANYqdq6" +
			"vcBcBUdJCVVFceUvJFjaPdGZ2y9WACViL4L"},
		{"3ddd5602285899a946114506157c7997e5444528f3003f6134712147db19b678", "m/0'/1'", "xprv9xJocDuwtYCMNAo3Zw76WENQe" +
			"AS6WGXQ55RCy7tDJ8oALr4FWkuVoHJeHVAcAqiZLE7Je3vZJHxspZdFHfnBEjHqU5hG1Jaj32dVoS6XLT1"},
	} {
		path := derivation{}
		if v.path != "" {
			var err error
			path, err = parsePath(v.path)
			require.NoError(t, err)
		}
		got, err := walkEVM(unhex(t, v.seed), path)
		require.NoError(t, err)
		require.Equal(t, xprv(t, v.want), got, "%s %s", v.seed, v.path)
	}
}

// The vectors of SLIP-10 for Ed25519: chain code, private key.
func TestSLIP10Vectors(t *testing.T) {
	for _, v := range []struct{ seed, path, chain, key string }{
		{"000102030405060708090a0b0c0d0e0f", "", "90046a93de5380a72b5e45010748567d5ea02bbf6522f979e05c0d8d8ca9fffb",
			"2b4be7f19ee27bbf30c667b642d5f4aa69fd169872f8fc3059c08ebae2eb19e7"},
		{"000102030405060708090a0b0c0d0e0f", "m/0'", "8b59aa11380b624e81507a27fedda59fea6d0b779a778918a2fd3590e16e9c69",
			"68e0fe46dfb67e368c75379acec591dad19df3cde26e63b93a8e704f1dade7a3"},
		{"000102030405060708090a0b0c0d0e0f", "m/0'/1'/2'", "2e69929e00b5ab250f49c3fb1c12f252de4fed2c1db88387094a0f8c4c" +
			"9ccd6c", "92a5b23c0b8a99e37d07df3fb9966917f5d06e02ddbd909c7e184371463e9fc9"},
		{"000102030405060708090a0b0c0d0e0f", "m/0'/1'/2'/2'/1000000000'", "68789923a0cac2cd5a29172a475fe9e0fb14cd6adb5" +
			"ad98a3fa70333e7afa230", "8f94d394a8e8fd6b1bc2f3f49f5c47e385281d5c17e65324b0f62483e37e8793"},
		{seedOfVector2, "", "ef70a74db9c3a5af931b5fe73ed8e1a53464133654fd55e7a66f8570b8e33c3b",
			"171cb88b1b3c1db25add599712e36245d75bc65a1a5c9e18d76f9f2b1eab4012"},
	} {
		path := derivation{}
		if v.path != "" {
			var err error
			path, err = parsePath(v.path)
			require.NoError(t, err)
		}
		got := walkSolana(unhex(t, v.seed), path)
		require.Equal(t, v.key+v.chain, hex.EncodeToString(got[:]), v.path)
	}
}

func TestPaths(t *testing.T) {
	p := StandardPaths(0)
	require.Equal(t, Paths{Solana: "m/44'/501'/0'/0'", EVM: "m/44'/60'/0'/0/0"}, p)
	require.Equal(t, Paths{Solana: "m/44'/501'/7'/0'", EVM: "m/44'/60'/0'/0/7"}, StandardPaths(7))
	require.NoError(t, p.Put("", "m/44h/501H/3'"))
	require.NoError(t, p.Put("", "m/44'/60'/2'/0/0"))
	require.Equal(t, Paths{Solana: "m/44'/501'/3'", EVM: "m/44'/60'/2'/0/0"}, p)
	require.NoError(t, p.Put(ChainSolana, SeedPath))
	require.NoError(t, p.Put(ChainEVM, "m/0"))
	require.Equal(t, Paths{Solana: "seed", EVM: "m/0"}, p)
	for _, wrong := range [][2]string{
		{"", "m/44'/0'/0'"}, {"", "seed"}, {ChainEVM, "seed"}, {ChainSolana, "m/44'/501'/0'/0"}, {"", "44'/60'/0'"},
		{"", "m"}, {"", "m/"}, {"", ""}, {"", "m/44'/60'/0'//0"}, {"", "m/44''/60'"}, {"", "m/44'/60'/-1"},
		{"", "m/44'/60'/+1"}, {"", "m/44'/60'/01"}, {"", "m/44'/60'/2147483648"}, {"", "m/44'/60'/4294967296"},
		{"", "m/44'/60'/0'/0/0/0/0"}, {"", "M/44'/60'/0'/0/0"}, {"", "m/44'/60'/0x0"}, {"", "m/44'/60'/ 0"},
		{"bitcoin", "m/44'/60'/0'/0/0"}, {"", "m/44'/60'/" + strings.Repeat("0", 200)},
	} {
		require.Error(t, p.Put(wrong[0], wrong[1]), "%q", wrong)
	}
}
