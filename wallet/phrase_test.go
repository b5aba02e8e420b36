package wallet

import (
	"bytes"
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/guarded"
)

// The phrase of anvil's, hardhat's and the golden keystores' accounts, and its Solana address in other
// wallets.
const (
	knownPhrase = "test test test test test test test test test test test junk"
	knownSolana = "oeYf6KAJkLYhBuR8CiGc6L4D4Xtfepr85fuDgA9kq96"

	goldenEntropy = "df9bf37e6fcdf9bf37e6fcdf9bf37e3c"
)

// phraseWallet is a wallet of the known phrase.
func phraseWallet(t *testing.T, opt Options) (*Wallet, *fakeKDF) {
	t.Helper()
	f := &fakeKDF{}
	opt.derive = f.derive
	opt.Phrase = Outside.Seeds(t, knownPhrase, "", 0)
	w, err := Create(t.Context(), home(t), value(testPassphrase), opt)
	require.NoError(t, err)
	requireWiped(t, opt.Phrase)
	t.Cleanup(func() { _ = w.Close() })
	return w, f
}

func requireWiped(t *testing.T, s *guarded.Seeds) {
	t.Helper()
	solana, evm, phrase := guarded.PartsOf(s)
	require.Equal(t, make([]byte, 64), append(solana[:], evm[:]...))
	require.Equal(t, make([]byte, len(phrase)), phrase)
}

// stored is what the keystore of w holds.
func stored(t *testing.T, w *Wallet, f *fakeKDF, passphrase string) *keys {
	t.Helper()
	ks, _, err := readKeystore(w.dir)
	require.NoError(t, err)
	k, err := ks.decrypt([]byte(passphrase), f.derive)
	require.NoError(t, err)
	t.Cleanup(k.wipe)
	return k
}

func TestKeysOnly(t *testing.T) {
	w, f := phraseWallet(t, Options{KeysOnly: true})
	requireAddresses(t, w, knownSolana, goldenEVM)
	require.False(t, stored(t, w, f, testPassphrase).hasPhrase())
	has, err := w.HasPhrase()
	require.NoError(t, err)
	require.False(t, has)
}

// Keystores with a phrase as another program made them (testdata/golden.py).
func TestGoldenKeystoresWithAPhrase(t *testing.T) {
	for _, of := range []string{"phrase", "all"} {
		ks, k, _ := goldenKeystore(t, of)
		require.Equal(t, knownSolana, ks.solana)
		require.Equal(t, unhex(t, goldenEntropy), k.phrase.Entropy())

		// the keys are the phrase's
		_, _, ours := guarded.PartsOf(Outside.Seeds(t, knownPhrase, "", 0))
		require.Equal(t, ours, []byte(k.phrase))

		plain := string(k.plaintext().Bytes)
		record := plainPhrase + base64.StdEncoding.EncodeToString(k.phrase)
		require.Contains(t, plain, record)
		broken := bytes.Clone(k.phrase)
		broken[33] = 1 // behind an entropy of 16 bytes
		for name, forged := range map[string]string{
			"no phrase":      strings.Replace(plain, record, "", 1),
			"zeros":          strings.Replace(plain, record, plainPhrase+strings.Repeat("A", 112), 1),
			"another length": strings.Replace(plain, record, plainPhrase+strings.Repeat("/", 112), 1),
			"behind its end": strings.Replace(plain, record,
				plainPhrase+base64.StdEncoding.EncodeToString(broken), 1),
			"another version": strings.Replace(plain, "1", "2", 1),
			"cut":             plain[:len(plain)-3],
		} {
			_, err := readPlaintext([]byte(forged), ks.holds, len(k.accounts))
			require.ErrorIs(t, err, errPlaintext, name)
		}
		for _, other := range []contents{{}, {phrase: true}} {
			if other != ks.holds {
				_, err := readPlaintext([]byte(plain), other, len(k.accounts))
				require.ErrorIs(t, err, errPlaintext, other)
			}
		}
	}
	_, err := parse(bytes.Replace(mustRead(t, "testdata/keystore-phrase.json"), []byte(`"version": 1`),
		[]byte(`"version": 9`), 1))
	require.ErrorContains(t, err, "this program reads version 1")
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// What is written is read back with the same phrase in it before it takes the old one's name.
func TestThePhraseIsProvenBeforeTheRename(t *testing.T) {
	w, f := phraseWallet(t, Options{})
	k := stored(t, w, f, testPassphrase)
	verify := opensWith([]byte(testPassphrase), f.derive, k)
	require.NoError(t, verify([]byte(readFile(t, w.dir))))
	k.phrase[2] ^= 1
	require.ErrorContains(t, verify([]byte(readFile(t, w.dir))), "phrase is another")
}

func TestPhraseAndImportsExclude(t *testing.T) {
	key := privateKey(t, ChainEVM, unhex(t, goldenEVMSecret))
	p := Outside.Seeds(t, knownPhrase, "", 0)
	_, err := Create(t.Context(), home(t), value(testPassphrase),
		Options{derive: new(fakeKDF).derive, Phrase: p, Import: []guarded.PrivateKey{key}})
	require.ErrorContains(t, err, "a phrase has the keys for both chains")
	requireWiped(t, p)
}
