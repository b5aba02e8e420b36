package wallet

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// The account "research" of testdata/keystore-account.json and keystore-all.json.
const (
	researchEVM    = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" // anvil's second
	researchSolana = "AqynRZwvVqUPRwRJXvm6odUb3t93fDjnWe3p6BeuUFxD"
)

// Keystores with another account as another program made them (testdata/golden.py).
func TestGoldenKeystoresWithAnAccount(t *testing.T) {
	for _, of := range []string{"account", "all"} {
		ks, k, f := goldenKeystore(t, of)
		require.Equal(t, contents{phrase: of == "all"}, ks.holds)
		require.Equal(t, ks.holds, k.holds())
		require.Equal(t, researchEVM, ks.accounts[0].EVM)

		plain := string(k.plaintext().Bytes)
		for name, forged := range map[string]string{
			"no account":         plain[:strings.Index(plain, `","solana1"`)] + plainEnd,
			"another's name":     strings.Replace(plain, `"evm1"`, `"evm2"`, 1),
			"cut":                plain[:len(plain)-1],
			"something besides":  strings.Replace(plain, plainEnd, `","evm2":"`+plainEnd, 1),
			"not base64 at last": plain[:len(plain)-4] + "!" + plain[len(plain)-3:],
		} {
			_, err := readPlaintext([]byte(forged), ks.holds, 1)
			require.ErrorIs(t, err, errPlaintext, name)
		}
		_, err := readPlaintext([]byte(plain), ks.holds, 2)
		require.ErrorIs(t, err, errPlaintext)

		// whoever knows the passphrase, and names other addresses than those of the keys
		ks.accounts[0].EVM = testVault
		_, err = forge(t, f, ks.header, []byte(plain)).decrypt([]byte(testPassphrase), f.derive)
		requireCode(t, err, coded.KeystoreCorrupt)
	}
}

func TestKeystoreWithAccountsRefused(t *testing.T) {
	good := string(mustRead(t, "testdata/keystore-account.json"))
	_, list, _ := strings.Cut(good, `"accounts": [`)
	list, _, _ = strings.Cut(list, "\n  ],")
	twice := strings.Replace(good, list, list+","+list, 1)
	for name, file := range map[string]string{
		"none listed":              strings.Replace(good, list, "", 1),
		"no list":                  strings.Replace(good, `"accounts": [`+list+"\n  ],\n", "", 1),
		"one twice":                twice,
		"two with the same keys":   strings.Replace(twice, "research", "other", 1),
		"no name for an account":   strings.Replace(good, "research", "Research", 1),
		"a name of two lines":      strings.Replace(good, "research", `a\nb`, 1),
		"the wallet's own keys":    strings.Replace(good, researchEVM, goldenEVM, 1),
		"no place in a phrase":     strings.Replace(good, `"index": 0`, `"index": 2147483648`, 1),
		"something else of it":     strings.Replace(good, `"index": 0`, `"index": 0, "more": 1`, 1),
		"an address that is none":  strings.Replace(good, researchEVM, strings.ToLower(researchEVM), 1),
		"fewer secrets than names": strings.Replace(twice, "research", "other", 1),
	} {
		require.NotEqual(t, good, file, name)
		_, err := parse([]byte(file))
		requireCode(t, err, coded.KeystoreCorrupt)
	}
}

// signsAs has an account sign on both chains, and looks whose signatures these are.
func signsAs(t *testing.T, a *Account, solana, evm string) {
	t.Helper()
	gotSolana, gotEVM := a.Addresses()
	require.Equal(t, [2]string{solana, evm}, [2]string{gotSolana, gotEVM})
	a.wallet.now = func() time.Time { return kindsNow }
	transfer := goodTransfer()
	transfer.From = evm
	signature, err := a.SignEVM(t.Context(), transfer)
	require.NoError(t, err)
	signature[64] -= 27
	digest := transfer.digest()
	by, err := crypto.SigToPub(digest[:], signature[:])
	require.NoError(t, err)
	require.Equal(t, evm, crypto.PubkeyToAddress(*by).Hex())
	message := []byte("anything")
	onSolana, err := a.signSolana(t.Context(), Text, message)
	require.NoError(t, err)
	require.True(t, ed25519.Verify(curve.Unbase58(solana, ed25519.PublicKeySize), message, onSolana[:]))

	transfer.From = testVault
	_, err = a.SignEVM(t.Context(), transfer)
	require.ErrorIs(t, err, coded.ErrUnsupported)
}

// Accounts of the phrase: where other wallets have them, through everything that rewrites the keystore, which
// keeps the phrase, too; and each signs with its own keys alone.
func TestAccountsOfThePhrase(t *testing.T) {
	before, f := phraseWallet(t, Options{})
	phrase := stored(t, before, f, testPassphrase).phrase
	require.Equal(t, unhex(t, goldenEntropy), phrase.Entropy())
	require.Equal(t, "m/44'/501'/0'/0'", phrase.SolanaPath().String())
	require.Equal(t, "m/44'/60'/0'/0/0", phrase.EVMPath().String())
	require.False(t, phrase.HasPassphrase())
	require.False(t, before.keys.hasPhrase(), "it is not held")
	research, err := before.AddAccount(t.Context(), value(testPassphrase),
		ofPhrase(NewAccount{Name: "research"}))
	require.NoError(t, err)
	require.Equal(t, AccountInfo{"research", 1, researchSolana, researchEVM}, research)
	_, err = before.AccountNamed("research")
	requireCode(t, err, coded.NotFound) // it was opened before
	signsAs(t, &before.Account, knownSolana, goldenEVM)

	travel, err := before.AddAccount(t.Context(), value(testPassphrase),
		ofPhrase(NewAccount{Name: "travel", Index: 7}))
	require.NoError(t, err)
	next, err := before.AddAccount(t.Context(), value(testPassphrase), ofPhrase(NewAccount{Name: "next"}))
	require.NoError(t, err)
	require.Equal(t, uint32(2), next.Index)
	ours := Outside.Seeds(t, knownPhrase, "", 7)
	require.Equal(t, AccountInfo{"travel", 7, ours.Solana, ours.EVM}, travel)

	require.NoError(t, before.ChangePassphrase(t.Context(), value(testPassphrase), value(newPassphrase),
		Options{}))
	has, err := before.HasPhrase()
	require.NoError(t, err)
	require.True(t, has)
	kept := stored(t, before, f, newPassphrase)
	require.Equal(t, contents{phrase: true}, kept.holds())
	require.Equal(t, []byte(phrase), []byte(kept.phrase))

	w := reopened(t, before, f, newPassphrase)
	require.Equal(t, []AccountInfo{research, travel, next}, w.Accounts())
	for range 2 {
		for _, info := range w.Accounts() {
			a, err := w.AccountNamed(info.Name)
			require.NoError(t, err)
			signsAs(t, a, info.Solana, info.EVM)
		}
		signsAs(t, &w.Account, knownSolana, goldenEVM)
		require.False(t, w.keys.hasPhrase())
		w.Lock()
	}
	_, err = w.AccountNamed("nobody")
	requireCode(t, err, coded.NotFound)
}

func TestRandomAccounts(t *testing.T) {
	w, f := newTestWallet(t)
	info, err := w.AddAccount(t.Context(), value(testPassphrase), ofPhrase(NewAccount{Name: "research"}))
	require.NoError(t, err)
	require.Zero(t, info.Index)
	_, err = w.AddAccount(t.Context(), value(testPassphrase), ofPhrase(NewAccount{Name: "other", Index: 1}))
	requireCode(t, err, coded.SetupFailed) // there is no phrase
	again := reopened(t, w, f, testPassphrase)
	a, err := again.AccountNamed("research")
	require.NoError(t, err)
	signsAs(t, a, info.Solana, info.EVM)
	require.Equal(t, contents{}, stored(t, w, f, testPassphrase).holds())
}

// What is refused leaves the keystore as it was.
func TestAddAccountRefused(t *testing.T) {
	w, _ := phraseWallet(t, Options{})
	_, err := w.AddAccount(t.Context(), value(testPassphrase), ofPhrase(NewAccount{Name: "research"}))
	require.NoError(t, err)
	before := mustRead(t, filepath.Join(w.dir, keystoreName))
	for name, c := range map[string]struct {
		a    NewAccount
		with string
		code coded.Code
	}{
		"wrong passphrase": {ofPhrase(NewAccount{Name: "other"}), newPassphrase,
			coded.InvalidPassphrase},
		"the same name": {ofPhrase(NewAccount{Name: "research", Index: 5}),
			testPassphrase, coded.SetupFailed},
		"no name": {ofPhrase(NewAccount{}), testPassphrase, coded.SetupFailed},
		"the name of a file": {ofPhrase(NewAccount{Name: "../keys"}), testPassphrase,
			coded.SetupFailed},
		"the keys of another": {ofPhrase(NewAccount{Name: "other", Index: 1}), testPassphrase,
			coded.SetupFailed},
		"no account of a phrase": {ofPhrase(NewAccount{Name: "other", Index: MaxAccount + 1}), testPassphrase,
			coded.SetupFailed},
		"the phrase's passphrase": {ofPhrase(NewAccount{Name: "other", PhrasePassphrase: value("x")}),
			testPassphrase, coded.SetupFailed},
	} {
		_, err := w.AddAccount(t.Context(), value(c.with), c.a)
		require.Error(t, err, name)
		requireCode(t, err, c.code)
		require.Equal(t, before, mustRead(t, filepath.Join(w.dir, keystoreName)), name)
	}
}

// Of a phrase with a passphrase of its own, accounts need that, too.
func TestAccountOfAPhraseWithAPassphrase(t *testing.T) {
	f := &fakeKDF{}
	w, err := Create(t.Context(), home(t), value(testPassphrase), Options{derive: f.derive,
		Phrase: Outside.Seeds(t, knownPhrase, "TREZOR", 1)})
	require.NoError(t, err)
	defer func() { _ = w.Close() }()
	_, err = w.AddAccount(t.Context(), value(testPassphrase), ofPhrase(NewAccount{Name: "research"}))
	require.ErrorContains(t, err, "a passphrase of the phrase's own belongs to it")
	info, err := w.AddAccount(t.Context(), value(testPassphrase),
		ofPhrase(NewAccount{Name: "research", PhrasePassphrase: value("TREZOR")}))
	require.NoError(t, err)
	require.Equal(t, uint32(2), info.Index, "the first is the wallet's own")
}

// A signer of the owner signs for the wallet's own account, and for no other.
func TestSignersAreOfTheWalletsOwnAccount(t *testing.T) {
	w, f := phraseWallet(t, Options{})
	info, err := w.AddAccount(t.Context(), value(testPassphrase), ofPhrase(NewAccount{Name: "research"}))
	require.NoError(t, err)
	again := reopened(t, w, f, testPassphrase)
	key, err := crypto.GenerateKey()
	require.NoError(t, err)
	hsm := &elsewhere{evm: key}
	again.Signers = map[string]Signer{ChainEVM: hsm}
	_, address := hsm.Account()
	signsAs(t, &again.Account, knownSolana, address)
	a, err := again.AccountNamed("research")
	require.NoError(t, err)
	signsAs(t, a, info.Solana, info.EVM)
}

// A keystore in which an account has become another one, or is missing, opens for nobody who knew it.
func TestAccountsAreThoseThatWereThere(t *testing.T) {
	w, f := phraseWallet(t, Options{})
	old := mustRead(t, filepath.Join(w.dir, keystoreName))
	_, err := w.AddAccount(t.Context(), value(testPassphrase), ofPhrase(NewAccount{Name: "research"}))
	require.NoError(t, err)
	again := reopened(t, w, f, testPassphrase)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, keystoreName), old, 0o600))
	requireCode(t, again.Unlock(t.Context()), coded.KeystoreCorrupt)
}

func TestMostAccounts(t *testing.T) {
	k, err := generate(rand.Reader, nil, nil)
	require.NoError(t, err)
	var others []AccountInfo
	for i := range MaxAccounts {
		k = k.withRoom()
		fresh := k.accounts[i]
		_, _ = rand.Read(fresh.solana[:guarded.Size])
		_, _ = rand.Read(fresh.evm.Secret[:])
		others = append(others, AccountInfo{Name: fmt.Sprintf("account-%032d", i), Index: MaxAccount})
	}
	_, err = k.complete()
	require.NoError(t, err)
	f := &fakeKDF{}
	ks, err := encrypt(k, others, []byte(testPassphrase), minN, time.Now(), f.derive, rand.Reader)
	require.NoError(t, err)
	data, err := ks.marshal()
	require.NoError(t, err)
	require.Less(t, len(data), maxKeystore)
	again, err := parse(data)
	require.NoError(t, err)
	opened, err := again.decrypt([]byte(testPassphrase), f.derive)
	require.NoError(t, err)
	require.True(t, opened.hasAccountsOf(k))
	require.ErrorContains(t, ks.checkName(AccountInfo{Name: "more"}), "at most 64 accounts")
}

// ofPhrase is an account whose keys may come from the phrase.
func ofPhrase(a NewAccount) NewAccount {
	a.Derive = Outside.Derive
	return a
}
