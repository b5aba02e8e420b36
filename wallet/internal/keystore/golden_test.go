package keystore_test

import (
	"bytes"
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/recovery"
)

// Keystores with a phrase as another program made them (testdata/golden.py).
func TestGoldenKeystoresWithAPhrase(t *testing.T) {
	for _, of := range []string{"phrase", "all"} {
		ks, k, _ := keytest.Opened(t, of)
		require.Equal(t, keytest.PhraseSolana, ks.Solana)
		require.Equal(t, keytest.Unhex(t, keytest.Entropy), k.Phrase.Entropy())

		// the keys are the phrase's
		p, err := recovery.Read(t.Context(), wallet.FromValue(keytest.Phrase), nil, recovery.StandardPaths(0))
		require.NoError(t, err)
		seeds := must.Get(p.Seeds())(t)
		_, _, ours := guarded.PartsOf(seeds)
		require.Equal(t, ours, []byte(k.Phrase))
		p.Wipe()
		seeds.Wipe()

		plain := keytest.Plaintext(k)
		record := keystore.PlainPhrase + base64.StdEncoding.EncodeToString(k.Phrase)
		require.Contains(t, plain, record)
		broken := bytes.Clone(k.Phrase)
		broken[33] = 1 // behind an entropy of 16 bytes
		for name, forged := range map[string]string{
			"no phrase": strings.Replace(plain, record, "", 1),
			"zeros": strings.Replace(plain, record,
				keystore.PlainPhrase+strings.Repeat("A", 112), 1),
			"another length": strings.Replace(plain, record,
				keystore.PlainPhrase+strings.Repeat("/", 112), 1),
			"behind its end": strings.Replace(plain, record,
				keystore.PlainPhrase+base64.StdEncoding.EncodeToString(broken), 1),
			"another version": strings.Replace(plain, "1", "2", 1),
			"cut":             plain[:len(plain)-3],
		} {
			_, err := keystore.ReadPlaintext([]byte(forged), ks.Holds, len(k.Accounts))
			require.ErrorIs(t, err, keystore.ErrPlaintext, name)
		}
		for _, other := range []keystore.Contents{{}, {Phrase: true}} {
			if other != ks.Holds {
				_, err := keystore.ReadPlaintext([]byte(plain), other, len(k.Accounts))
				require.ErrorIs(t, err, keystore.ErrPlaintext, other)
			}
		}
	}
	_, err := keystore.Parse(bytes.Replace(keytest.File(t, "phrase"), []byte(`"version": 1`),
		[]byte(`"version": 9`), 1))
	require.ErrorContains(t, err, "this program reads version 1")
}

// Keystores with another account as another program made them (testdata/golden.py).
func TestGoldenKeystoresWithAnAccount(t *testing.T) {
	for _, of := range []string{"account", "all"} {
		ks, k, f := keytest.Opened(t, of)
		require.Equal(t, keystore.Contents{Phrase: of == "all"}, ks.Holds)
		require.Equal(t, ks.Holds, k.Holds())
		require.Equal(t, keytest.ResearchEVM, ks.Accounts[0].EVM)

		plain := keytest.Plaintext(k)
		for name, forged := range map[string]string{
			"no account":         plain[:strings.Index(plain, `","solana1"`)] + keystore.PlainEnd,
			"another's name":     strings.Replace(plain, `"evm1"`, `"evm2"`, 1),
			"cut":                plain[:len(plain)-1],
			"something besides":  strings.Replace(plain, keystore.PlainEnd, `","evm2":"`+keystore.PlainEnd, 1),
			"not base64 at last": plain[:len(plain)-4] + "!" + plain[len(plain)-3:],
		} {
			_, err := keystore.ReadPlaintext([]byte(forged), ks.Holds, 1)
			require.ErrorIs(t, err, keystore.ErrPlaintext, name)
		}
		_, err := keystore.ReadPlaintext([]byte(plain), ks.Holds, 2)
		require.ErrorIs(t, err, keystore.ErrPlaintext)

		// whoever knows the passphrase, and names other addresses than those of the keys
		ks.Accounts[0].EVM = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
		_, err = keytest.Forge(t, f, ks.Header, []byte(plain)).Decrypt([]byte(keytest.Passphrase), f.Derive)
		keytest.RequireCode(t, err, coded.KeystoreCorrupt)
	}
}

func TestKeystoreWithAccountsRefused(t *testing.T) {
	good := string(keytest.File(t, "account"))
	_, list, _ := strings.Cut(good, `"accounts": [`)
	list, _, _ = strings.Cut(list, "\n  ],")
	twice := strings.Replace(good, list, list+","+list, 1)
	for name, file := range map[string]string{
		"none listed":            strings.Replace(good, list, "", 1),
		"no list":                strings.Replace(good, `"accounts": [`+list+"\n  ],\n", "", 1),
		"one twice":              twice,
		"two with the same keys": strings.Replace(twice, "research", "other", 1),
		"no name for an account": strings.Replace(good, "research", "Research", 1),
		"a name of two lines":    strings.Replace(good, "research", `a\nb`, 1),
		"the wallet's own keys":  strings.Replace(good, keytest.ResearchEVM, keytest.EVM, 1),
		"no place in a phrase":   strings.Replace(good, `"index": 0`, `"index": 2147483648`, 1),
		"something else of it":   strings.Replace(good, `"index": 0`, `"index": 0, "more": 1`, 1),
		"an address that is none": strings.Replace(good, keytest.ResearchEVM,
			strings.ToLower(keytest.ResearchEVM), 1),
		"fewer secrets than names": strings.Replace(twice, "research", "other", 1),
	} {
		require.NotEqual(t, good, file, name)
		keytest.RequireCode(t, must.Err(keystore.Parse([]byte(file))), coded.KeystoreCorrupt)
	}
}

// Both wrong passphrase and changed file answer this very sentence.
func TestNoOracle(t *testing.T) {
	data, passphrase := keytest.Golden(t)
	ks := must.Get(keystore.Parse(data))(t)
	f := &keytest.KDF{}
	f.Remember(t, ks, passphrase)
	_, wrong := ks.Decrypt([]byte("another passphrase"), f.Derive)
	ks.Ciphertext[7] ^= 0x20
	require.Equal(t, wrong, must.Err(ks.Decrypt(passphrase, f.Derive)))
	require.EqualError(t, wrong, "wrong passphrase, or the file was changed")
}

// The real derivation checks what it is given, whoever calls it.
func TestCommitmentKeyIsHalfOfItsOwn(t *testing.T) {
	data, passphrase := keytest.Golden(t)
	ks := must.Get(keystore.Parse(data))(t)
	derived := must.Get(keystore.Scrypt(passphrase, ks.Salt, ks.N, ks.R, ks.P))(t)
	require.Len(t, derived, 64)
	require.True(t, hmac.Equal(ks.Commitment, ks.Commit(derived)))
	for i, bad := range [][3]uint64{{1 << 30, 8, 1}, {3, 8, 1}, {keystore.MinN, 1 << 20, 1},
		{keystore.MinN, 8, 1 << 30},
		{keystore.MinN, 8, 0}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			require.Error(t, must.Err(keystore.Scrypt(passphrase, ks.Salt, bad[0], bad[1], bad[2])))
		})
	}
}

// NFC must fit into what normalizeNFC reserves, or a copy stays behind.
func TestNormaliseDoesNotGrow(t *testing.T) {
	for _, p := range []string{"", "x", strings.Repeat("\U0001D160", 300), strings.Repeat("\ufb2c", 300),
		strings.Repeat("\u0390", 300), strings.Repeat("é", 512)} {
		t.Run(p, func(t *testing.T) {
			out := keystore.NFC([]byte(p))
			require.LessOrEqual(t, len(out.Bytes), 3*len(p))
			require.Equal(t, 3*len(p)+4, cap(out.Bytes))
			if p != "" {
				first := &out.Bytes[0]
				out.Wipe()
				require.Equal(t, make([]byte, 3*len(p)+4), out.Bytes)
				require.Same(t, first, &out.Bytes[0])
			}
		})
	}
	p := []byte("unchanged")
	require.NotSame(t, &p[0], &keystore.NFC(p).Bytes[0])
}
