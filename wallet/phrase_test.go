package wallet

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The phrase of anvil's, hardhat's and the golden keystores' accounts, and its Solana address in other
// wallets.
const (
	knownPhrase = "test test test test test test test test test test test junk"
	knownSolana = "oeYf6KAJkLYhBuR8CiGc6L4D4Xtfepr85fuDgA9kq96"

	goldenEntropy = "df9bf37e6fcdf9bf37e6fcdf9bf37e3c"
)

func readPhrase(t *testing.T, text, passphrase string, paths Paths) *Phrase {
	t.Helper()
	var extra Passphrase
	if passphrase != "" {
		extra = value(passphrase)
	}
	p, err := ReadPhrase(t.Context(), value(text), extra, paths)
	require.NoError(t, err)
	t.Cleanup(p.Wipe)
	return p
}

// Addresses as other wallets have them: anvil's accounts 0 and 1, Phantom's first, solana-keygen's without a
// path (made with viem 2.57, solana-keygen's documentation, and testdata/golden.py).
func TestPhraseAddresses(t *testing.T) {
	seedPath := StandardPaths(0)
	require.NoError(t, seedPath.Put(ChainSolana, SeedPath))
	for name, tc := range map[string]struct {
		passphrase  string
		paths       Paths
		solana, evm string
	}{
		"standard":  {"", StandardPaths(0), knownSolana, goldenEVM},
		"account 1": {"", StandardPaths(1), "", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"},
		"seed":      {"", seedPath, "", goldenEVM},
	} {
		t.Run(name, func(t *testing.T) {
			p := readPhrase(t, knownPhrase, tc.passphrase, tc.paths)
			solana, evm, err := p.Addresses()
			require.NoError(t, err)
			require.Equal(t, tc.evm, evm)
			if tc.solana != "" {
				require.Equal(t, tc.solana, solana)
			} else {
				require.NotEqual(t, knownSolana, solana)
			}
		})
	}
	solana, evm, err := readPhrase(t, knownPhrase, "hunter2", StandardPaths(0)).Addresses()
	require.NoError(t, err)
	require.NotEqual(t, knownSolana, solana)
	require.NotEqual(t, goldenEVM, evm)
}

// solana-keygen without a path takes the first half of a seed.
func TestSolanaKeygensOwnPath(t *testing.T) {
	words, _, err := readWords([]byte(knownPhrase))
	require.NoError(t, err)
	seed, err := bip39Seed(words, nil)
	require.NoError(t, err)
	key, err := newImported("", ChainSolana, seed[:32])
	require.NoError(t, err)
	paths := StandardPaths(0)
	require.NoError(t, paths.Put(ChainSolana, SeedPath))
	solana, _, err := readPhrase(t, knownPhrase, "", paths).Addresses()
	require.NoError(t, err)
	require.Equal(t, key.Address, solana)
}

// phraseWallet is a wallet of the known phrase.
func phraseWallet(t *testing.T, opt Options) (*Wallet, *fakeKDF) {
	t.Helper()
	f := &fakeKDF{}
	opt.derive = f.derive
	opt.Phrase = readPhrase(t, knownPhrase, "", StandardPaths(0))
	w, err := Create(t.Context(), home(t), value(testPassphrase), opt)
	require.NoError(t, err)
	require.Nil(t, opt.Phrase.seed, "wiped")
	t.Cleanup(func() { _ = w.Close() })
	return w, f
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

// A new wallet's phrase makes the same wallet again, in this program as in another.
func TestNewPhrase(t *testing.T) {
	p, err := NewPhrase(bytes.NewReader(bytes.Repeat([]byte{0x7f}, 32)))
	require.NoError(t, err)
	defer p.Wipe()
	solana, evm, err := p.Addresses()
	require.NoError(t, err)
	again := readPhrase(t, strings.Repeat("legal winner thank year wave sausage worth useful ", 2)+
		"legal winner thank year wave sausage worth title", "", StandardPaths(0))
	solanaAgain, evmAgain, err := again.Addresses()
	require.NoError(t, err)
	require.Equal(t, [2]string{solana, evm}, [2]string{solanaAgain, evmAgain})
	_, err = NewPhrase(bytes.NewReader(make([]byte, 31)))
	requireCode(t, err, codeSetup)
}

// Keystores with a phrase as another program made them (testdata/golden.py).
func TestGoldenKeystoresWithAPhrase(t *testing.T) {
	for _, of := range []string{"phrase", "all"} {
		ks, k, _ := goldenKeystore(t, of)
		require.Equal(t, knownSolana, ks.solana)
		require.Equal(t, knownPhrase, string(spell(wordsOf(k.phrase.entropy()))))

		// the keys are the phrase's
		ours := readPhrase(t, knownPhrase, "", StandardPaths(0))
		require.Equal(t, []byte(ours.record), []byte(k.phrase))

		plain := string(k.plaintext().bytes)
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

// phraseRecords are right only as they are written: a byte anywhere else is found.
func TestPhraseRecord(t *testing.T) {
	record := make(phraseRecord, phraseSize)
	require.False(t, record.isThere() || record.isRight())
	for size := 16; size <= 32; size += 4 {
		for _, path := range []string{SeedPath, "m/0'", "m/1'/2'/3'/4'/5'/2147483647'"} {
			solana, err := parsePath(path)
			require.NoError(t, err)
			record.set(bytes.Repeat([]byte{1}, size), size == 32, solana, derivation{1, 2})
			require.True(t, record.isThere() && record.isRight())
			require.Equal(t, path, record.solanaPath().String())
			require.Equal(t, size == 32, record.hasPassphrase())
			require.Len(t, record.entropy(), size)
		}
	}
	for i, b := range map[int]byte{0: 17, 1: 2, 34: 7, 59: 0xff, 70: 1, 83: 1} {
		wrong := bytes.Clone(record)
		wrong[i] = b
		require.False(t, phraseRecord(wrong).isRight(), "byte %d", i)
	}
	record.set(bytes.Repeat([]byte{1}, 16), false, derivation{hardenedStep}, derivation{0})
	record[atSolanaPath+1] = 0 // a step that is not hardened
	require.False(t, record.isRight())
}

// No error tells a word, whatever is wrong.
func TestReadPhraseRefuses(t *testing.T) {
	for text, said := range map[string]string{
		strings.Replace(knownPhrase, "junk", "jnuk", 1):      "word 12 is not in the English list of BIP-39",
		strings.Replace(knownPhrase, "test", "tset", 1):      "word 1 is not in the English list",
		strings.Replace(knownPhrase, "junk", "test", 1):      "its checksum is wrong",
		strings.Replace(knownPhrase, " junk", "", 1):         "12, 15, 18, 21 or 24 words, this one 11",
		knownPhrase + " " + knownPhrase + " zoo":             "or 24 words",
		"ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae": "word 1 is not in the English list",
		strings.Repeat("zoo ", 300):                          "longer than 1024 bytes",
		"\xff\xfe":                                           "word 1 is not in the English list",
	} {
		p, err := ReadPhrase(t.Context(), value(text), nil, StandardPaths(0))
		require.Nil(t, p)
		e := requireCode(t, err, codeSetup)
		require.Contains(t, e.Error(), said)
		for _, word := range strings.Fields(text) {
			require.NotContains(t, " "+strings.ReplaceAll(e.Error()+" "+e.Hint(), "\"", " ")+" ", " "+
				""+word+" ")
		}
	}
	_, err := ReadPhrase(t.Context(), value(""), nil, StandardPaths(0))
	require.ErrorContains(t, err, "there is no terminal")
	requireCode(t, err, codeSetup)
	_, err = ReadPhrase(t.Context(), value(knownPhrase), value(""), StandardPaths(0))
	requireCode(t, err, codeSetup)
	for _, paths := range []Paths{{}, {Solana: "m/44'/501'", EVM: "seed"}, {Solana: "m/44'/501'/0",
		EVM: "m/44'/60'"}} {
		_, err = ReadPhrase(t.Context(), value(knownPhrase), nil, paths)
		require.ErrorContains(t, err, "choose the keys of the phrase")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ReadPhrase(ctx, func(ctx context.Context) ([]byte, error) { return nil, ctx.Err() }, nil,
		StandardPaths(0))
	require.ErrorIs(t, err, context.Canceled)
}

func TestPhraseAndImportsExclude(t *testing.T) {
	key, err := newImported("", ChainEVM, unhex(t, goldenEVMSecret))
	require.NoError(t, err)
	p := readPhrase(t, knownPhrase, "", StandardPaths(0))
	_, err = Create(t.Context(), home(t), value(testPassphrase),
		Options{derive: new(fakeKDF).derive, Phrase: p, Import: []Imported{key}})
	require.ErrorContains(t, err, "a phrase has the keys for both chains")
	require.Nil(t, p.seed, "wiped all the same")
	_, _, err = p.Addresses()
	require.ErrorContains(t, err, "was wiped")
}

func TestPhraseFromFile(t *testing.T) {
	file := keyFile(t, "  Test test test test\ntest test test test\r\ntest test test junk\n\n")
	p, err := ReadPhrase(t.Context(), PhraseFromFile(file), nil, StandardPaths(0))
	require.NoError(t, err)
	_, evm, err := p.Addresses()
	require.NoError(t, err)
	require.Equal(t, goldenEVM, evm)
	p.Wipe()

	for file, said := range map[string]string{
		filepath.Join(t.TempDir(), "none"):   "there is no such file",
		keyFile(t, ""):                       "the file is empty",
		keyFile(t, strings.Repeat(" ", 2e3)): "larger than it may be",
	} {
		_, err := ReadPhrase(t.Context(), PhraseFromFile(file), nil, StandardPaths(0))
		require.Contains(t, requireCode(t, err, codeSetup).Error(), said)
	}
}

// Another wallet's phrase is for another account of it, and takes the passphrase that belongs to it.
func TestPhraseForAnotherAccount(t *testing.T) {
	f := &fakeKDF{}
	own := readPhrase(t, knownPhrase, "hunter2", StandardPaths(3))
	w, err := Create(t.Context(), home(t), value(testPassphrase), Options{derive: f.derive, Phrase: own})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	w.Lock()
	p, err := w.PhraseFor(t.Context(), value(testPassphrase), value("hunter2"), StandardPaths(4))
	require.NoError(t, err)
	defer p.Wipe()
	require.True(t, w.Locked(), "it is not unlocked by this")
	solana, evm, err := p.Addresses()
	require.NoError(t, err)
	wantSolana, wantEVM, err := readPhrase(t, knownPhrase, "hunter2", StandardPaths(4)).Addresses()
	require.NoError(t, err)
	require.Equal(t, [2]string{wantSolana, wantEVM}, [2]string{solana, evm})

	oneKey := StandardPaths(4)
	require.NoError(t, oneKey.Put("", "m/44'/60'/0'/0/3"))
	for name, tc := range map[string]struct {
		passphrase, extra string
		paths             Paths
		said              string
	}{
		"its own account":     {testPassphrase, "hunter2", StandardPaths(3), "that wallet's own"},
		"its own EVM key":     {testPassphrase, "hunter2", oneKey, "that wallet's own"},
		"another passphrase":  {testPassphrase, "hunter3", StandardPaths(4), "this is not the one"},
		"no passphrase of it": {testPassphrase, "", StandardPaths(4), "this is not the one"},
		"a wrong one of ours": {newPassphrase, "hunter2", StandardPaths(4), "wrong passphrase"},
		"no path of an EVM key": {testPassphrase, "hunter2", Paths{Solana: "seed", EVM: "seed"}, "has a " +
			"path"},
	} {
		t.Run(name, func(t *testing.T) {
			var extra Passphrase
			if tc.extra != "" {
				extra = value(tc.extra)
			}
			p, err := w.PhraseFor(t.Context(), value(tc.passphrase), extra, tc.paths)
			require.Nil(t, p)
			require.ErrorContains(t, err, tc.said)
			require.NotContains(t, err.Error(), "hunter")
		})
	}
	without, _ := newTestWallet(t)
	_, err = without.PhraseFor(t.Context(), never(t), nil, StandardPaths(1))
	require.ErrorContains(t, err, "this keystore has none")
}

func TestCheckPhrase(t *testing.T) {
	w, _ := phraseWallet(t, Options{})
	words, err := w.CheckPhrase(t.Context(), value(testPassphrase), value(knownPhrase))
	require.NoError(t, err)
	require.Equal(t, 12, words)
	other := strings.Repeat("abandon ", 11) + "about"
	_, err = w.CheckPhrase(t.Context(), value(testPassphrase), value(other))
	require.ErrorContains(t, err, "not this wallet's")
	_, err = w.CheckPhrase(t.Context(), value(newPassphrase), never(t))
	requireCode(t, err, codeInvalidPassphrase)
	without, _ := newTestWallet(t)
	_, err = without.CheckPhrase(t.Context(), never(t), never(t))
	require.ErrorContains(t, err, "this keystore has none")
}
