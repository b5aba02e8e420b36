package wallet

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// signsAs has an account sign on both chains, and looks whose signatures these are.
func signsAs(t *testing.T, a *Account, solana, evm string) {
	t.Helper()
	gotSolana, gotEVM := a.Addresses()
	require.Equal(t, [2]string{solana, evm}, [2]string{gotSolana, gotEVM})
	a.wallet.now = func() time.Time { return kindsNow }
	transfer := goodTransfer()
	transfer.From = evm
	signature := must.Get(a.SignEVM(t.Context(), transfer))(t)
	signature[64] -= 27
	digest := transfer.digest()
	by := must.Get(crypto.SigToPub(digest[:], signature[:]))(t)
	require.Equal(t, evm, crypto.PubkeyToAddress(*by).Hex())
	message := []byte("anything")
	onSolana := must.Get(a.signSolana(t.Context(), Text, message))(t)
	require.True(t, ed25519.Verify(curve.Unbase58(solana, ed25519.PublicKeySize), message, onSolana[:]))

	transfer.From = testVault
	require.ErrorIs(t, must.Err(a.SignEVM(t.Context(), transfer)), coded.ErrUnsupported)
}

// Accounts of the phrase: where other wallets have them, through everything that rewrites the keystore, which
// keeps the phrase, too; and each signs with its own keys alone.
func TestAccountsOfThePhrase(t *testing.T) {
	before, f := phraseWallet(t)
	phrase := keytest.Stored(t, before.dir, f, keytest.Passphrase).Phrase
	require.Equal(t, keytest.Unhex(t, keytest.Entropy), phrase.Entropy())
	require.Equal(t, "m/44'/501'/0'/0'", phrase.SolanaPath().String())
	require.Equal(t, "m/44'/60'/0'/0/0", phrase.EVMPath().String())
	require.False(t, phrase.HasPassphrase())
	require.False(t, before.keys.HasPhrase(), "it is not held")
	research := must.Get(Outside.AddAccount(t.Context(), before, value(keytest.Passphrase), "research", 0))(t)
	require.Equal(t, AccountInfo{Name: "research", Index: 1, Solana: keytest.ResearchSolana,
		EVM: keytest.ResearchEVM}, research)
	keytest.RequireCode(t, must.Err(before.AccountNamed("research")), coded.NotFound) // it was opened before
	signsAs(t, &before.Account, keytest.PhraseSolana, keytest.EVM)

	travel := must.Get(Outside.AddAccount(t.Context(), before, value(keytest.Passphrase), "travel", 7))(t)
	next := must.Get(Outside.AddAccount(t.Context(), before, value(keytest.Passphrase), "next", 0))(t)
	require.Equal(t, uint32(2), next.Index)
	ours := Outside.Seeds(t, keytest.Phrase, "", 7)
	require.Equal(t, AccountInfo{Name: "travel", Index: 7, Solana: ours.Solana, EVM: ours.EVM}, travel)

	require.NoError(t, Outside.ChangePassphrase(t.Context(), before, value(keytest.Passphrase),
		value(keytest.NewPassphrase)))
	require.True(t, must.Get(Outside.HasPhrase(before))(t))
	kept := keytest.Stored(t, before.dir, f, keytest.NewPassphrase)
	require.Equal(t, keystore.Contents{Phrase: true}, kept.Holds())
	require.Equal(t, []byte(phrase), []byte(kept.Phrase))

	w := reopened(t, before, f, keytest.NewPassphrase)
	require.Equal(t, []AccountInfo{research, travel, next}, w.Accounts())
	for range 2 {
		for _, info := range w.Accounts() {
			a := must.Get(w.AccountNamed(info.Name))(t)
			signsAs(t, a, info.Solana, info.EVM)
		}
		signsAs(t, &w.Account, keytest.PhraseSolana, keytest.EVM)
		require.False(t, w.keys.HasPhrase())
		w.Lock()
	}
	keytest.RequireCode(t, must.Err(w.AccountNamed("nobody")), coded.NotFound)
}

func TestRandomAccounts(t *testing.T) {
	w, f := newTestWallet(t)
	info := must.Get(Outside.AddAccount(t.Context(), w, value(keytest.Passphrase), "research", 0))(t)
	require.Zero(t, info.Index)
	_, err := Outside.AddAccount(t.Context(), w, value(keytest.Passphrase), "other", 1)
	keytest.RequireCode(t, err, coded.SetupFailed) // there is no phrase
	again := reopened(t, w, f, keytest.Passphrase)
	a := must.Get(again.AccountNamed("research"))(t)
	signsAs(t, a, info.Solana, info.EVM)
	require.Equal(t, keystore.Contents{}, keytest.Stored(t, w.dir, f, keytest.Passphrase).Holds())
}

// A signer of the owner signs for the wallet's own account, and for no other.
func TestSignersAreOfTheWalletsOwnAccount(t *testing.T) {
	w, f := phraseWallet(t)
	info := must.Get(Outside.AddAccount(t.Context(), w, value(keytest.Passphrase), "research", 0))(t)
	again := reopened(t, w, f, keytest.Passphrase)
	key := must.Get(crypto.GenerateKey())(t)
	hsm := &elsewhere{evm: key}
	again.Signers = map[string]Signer{ChainEVM: hsm}
	_, address := hsm.Account()
	signsAs(t, &again.Account, keytest.PhraseSolana, address)
	a := must.Get(again.AccountNamed("research"))(t)
	signsAs(t, a, info.Solana, info.EVM)
}

// The golden file was written by testdata/golden.py from the documentation
// alone.
func TestGoldenFile(t *testing.T) {
	data, _ := keytest.Golden(t)
	w := must.Get(Open(keytest.Put(t, data)))(t)
	require.True(t, w.Locked())
	solana, evm := w.Addresses()
	require.Equal(t, []string{keytest.Solana, keytest.EVM}, []string{solana, evm})
	require.Equal(t, keytest.Solana, w.header.Solana)
	require.Equal(t, keytest.EVM, w.header.EVM)
	require.Len(t, w.Warnings, 1)
	require.Contains(t, w.Warnings[0], "16384")

	for name, passphrase := range map[string]string{
		"as in passphrase.txt, NFD": "une cle\u0301 pour la tirelire",
		"NFC":                       "une cl\u00e9 pour la tirelire",
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, w.Unlock(t.Context(), value(passphrase)))
			require.Equal(t, keytest.Unhex(t, keytest.SolanaSeed), []byte(w.keys.Solana[:32]))
			require.Equal(t, keytest.Unhex(t, keytest.EVMSecret), w.keys.EVM.Secret[:])
			for i, b := range w.keys.Seal {
				require.EqualValues(t, i, b)
			}
			w.Lock()
		})
	}
	keytest.RequireCode(t, w.Unlock(t.Context(), value("une cle pour la tirelire")), coded.InvalidPassphrase)
}

// Through the front door: hostile parameters never get as far as a passphrase.
func TestHostileParametersAskNobody(t *testing.T) {
	data, _ := keytest.Golden(t)
	w := must.Get(Open(keytest.Put(t, data)))(t)
	for i, e := range []struct{ old, new string }{
		{"16384", "1073741824"}, {"16384", "9223372036854775808"}, {"16384", "3"},
		{`"r": 8`, `"r": 1048576`}, {`"p": 1`, `"p": 1073741824`},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			hostile := []byte(strings.Replace(string(data), e.old, e.new, 1))
			keytest.RequireRefused(t, hostile)
			keytest.RequireCode(t, must.Err(Open(keytest.Put(t, hostile))), coded.KeystoreCorrupt)

			// also when the file is exchanged after it was opened
			require.NoError(t, os.WriteFile(filepath.Join(w.dir, keystore.Name), hostile, 0o600))
			keytest.RequireCode(t, w.Unlock(t.Context(), never(t)), coded.KeystoreCorrupt)
		})
	}
}
