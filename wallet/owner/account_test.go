package owner_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
	. "x402-wallet/wallet/owner"
	"x402-wallet/wallet/recovery"
)

// What is refused leaves the keystore as it was.
func TestAddAccountRefused(t *testing.T) {
	w, _ := phraseWallet(t, Options{})
	must.Get(AddAccount(t.Context(), w, value(keytest.Passphrase), ofPhrase(NewAccount{Name: "research"})))(t)
	before := mustRead(t, filepath.Join(w.Dir(), keystore.Name))
	for name, c := range map[string]struct {
		a    NewAccount
		with string
		code coded.Code
	}{
		"wrong passphrase": {ofPhrase(NewAccount{Name: "other"}), keytest.NewPassphrase,
			coded.InvalidPassphrase},
		"the same name": {ofPhrase(NewAccount{Name: "research", Index: 5}),
			keytest.Passphrase, coded.SetupFailed},
		"no name": {ofPhrase(NewAccount{}), keytest.Passphrase, coded.SetupFailed},
		"the name of a file": {ofPhrase(NewAccount{Name: "../keys"}), keytest.Passphrase,
			coded.SetupFailed},
		"the keys of another": {ofPhrase(NewAccount{Name: "other", Index: 1}), keytest.Passphrase,
			coded.SetupFailed},
		"no account of a phrase": {ofPhrase(NewAccount{Name: "other", Index: MaxAccount + 1}),
			keytest.Passphrase, coded.SetupFailed},
		"the phrase's passphrase": {ofPhrase(NewAccount{Name: "other", PhrasePassphrase: value("x")}),
			keytest.Passphrase, coded.SetupFailed},
	} {
		_, err := AddAccount(t.Context(), w, value(c.with), c.a)
		require.Error(t, err, name)
		keytest.RequireCode(t, err, c.code)
		require.Equal(t, before, mustRead(t, filepath.Join(w.Dir(), keystore.Name)), name)
	}
}

// Of a phrase with a passphrase of its own, accounts need that, too.
func TestAccountOfAPhraseWithAPassphrase(t *testing.T) {
	f := &keytest.KDF{}
	w := must.Get(Create(t.Context(), keytest.Home(t), value(keytest.Passphrase), Options{KDF: f.Derive,
		Phrase: seeds(t, "TREZOR", 1)}))(t)
	defer func() { _ = w.Close() }()
	_, err := AddAccount(t.Context(), w, value(keytest.Passphrase), ofPhrase(NewAccount{Name: "research"}))
	require.ErrorContains(t, err, "a passphrase of the phrase's own belongs to it")
	info := must.Get(AddAccount(t.Context(), w, value(keytest.Passphrase),
		ofPhrase(NewAccount{Name: "research", PhrasePassphrase: value("TREZOR")})))(t)
	require.Equal(t, uint32(2), info.Index, "the first is the wallet's own")
}

// A keystore in which an account has become another one, or is missing, opens for nobody who knew it.
func TestAccountsAreThoseThatWereThere(t *testing.T) {
	w, f := phraseWallet(t, Options{})
	old := mustRead(t, filepath.Join(w.Dir(), keystore.Name))
	must.Get(AddAccount(t.Context(), w, value(keytest.Passphrase), ofPhrase(NewAccount{Name: "research"})))(t)
	again := reopened(t, w.Dir(), f)
	again.Sources = []wallet.Passphrase{value(keytest.Passphrase)}
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir(), keystore.Name), old, 0o600))
	keytest.RequireCode(t, again.Unlock(t.Context()), coded.KeystoreCorrupt)
}

func TestMostAccounts(t *testing.T) {
	k := must.Get(Generate(rand.Reader, nil, nil))(t)
	var others []wallet.AccountInfo
	for i := range keystore.MaxAccounts {
		k = WithRoom(k)
		fresh := k.Accounts[i]
		_, _ = rand.Read(fresh.Solana[:guarded.Size])
		_, _ = rand.Read(fresh.EVM.Secret[:])
		others = append(others, wallet.AccountInfo{Name: fmt.Sprintf("account-%032d", i), Index: MaxAccount})
	}
	must.Get(k.Complete())(t)
	f := &keytest.KDF{}
	ks := must.Get(Encrypt(k, others, []byte(keytest.Passphrase), keystore.MinN, time.Now(), f.Derive,
		rand.Reader))(t)
	data := must.Get(Marshal(ks))(t)
	require.Less(t, len(data), keystore.MaxSize)
	again := must.Get(keystore.Parse(data))(t)
	opened := must.Get(again.Decrypt([]byte(keytest.Passphrase), f.Derive))(t)
	require.True(t, HasAccountsOf(opened, k))
	require.ErrorContains(t, ks.CheckName(wallet.AccountInfo{Name: "more"}), "at most 64 accounts")
}

// ofPhrase is an account whose keys may come from the phrase.
func ofPhrase(a NewAccount) NewAccount {
	a.Derive = recovery.Derive
	return a
}
