package owner_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"

	. "x402-wallet/wallet/owner"
)

func TestKeysOnly(t *testing.T) {
	w, f := phraseWallet(t, Options{KeysOnly: true})
	requireAddresses(t, w, keytest.PhraseSolana, keytest.EVM)
	require.False(t, keytest.Stored(t, w.Dir(), f, keytest.Passphrase).HasPhrase())
	require.False(t, must.Get(HasPhrase(w))(t))
}

// What is written is read back with the same phrase in it before it takes the old one's name.
func TestThePhraseIsProvenBeforeTheRename(t *testing.T) {
	w, f := phraseWallet(t, Options{})
	k := keytest.Stored(t, w.Dir(), f, keytest.Passphrase)
	verify := OpensWith([]byte(keytest.Passphrase), f.Derive, k)
	require.NoError(t, verify(mustRead(t, filepath.Join(w.Dir(), keystore.Name))))
	k.Phrase[2] ^= 1
	require.ErrorContains(t, verify(mustRead(t, filepath.Join(w.Dir(), keystore.Name))), "phrase is another")
}

func TestPhraseAndImportsExclude(t *testing.T) {
	key := keytest.PrivateKey(t, wallet.ChainEVM, keytest.Unhex(t, keytest.EVMSecret))
	p := seeds(t, "", 0)
	_, err := Create(t.Context(), keytest.Home(t), value(keytest.Passphrase),
		Options{KDF: new(keytest.KDF).Derive, Phrase: p, Import: []guarded.PrivateKey{key}})
	require.ErrorContains(t, err, "a phrase has the keys for both chains")
	requireWiped(t, p)
}
