//go:build unix

package owner_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"

	. "x402-wallet/wallet/owner"
)

func TestChangePassphrase(t *testing.T) {
	w, f := newTestWallet(t)
	was := header(t, w.Dir())
	before := must.Get(os.ReadFile(filepath.Join(w.Dir(), keystore.Name)))(t)
	require.NoError(t, ChangePassphrase(t.Context(), w, value(keytest.Passphrase),
		value(keytest.NewPassphrase), Options{}))
	require.True(t, w.Locked(), "it is not unlocked by this")
	requireOnlyKeystore(t, w.Dir())

	again := reopened(t, w.Dir(), f)
	requireAddresses(t, again, was.Solana, was.EVM)
	require.Equal(t, was.Created, header(t, w.Dir()).Created)
	require.NotEqual(t, was.Salt, header(t, w.Dir()).Salt)
	keytest.RequireCode(t, again.Unlock(t.Context(), value(keytest.Passphrase)), coded.InvalidPassphrase)
	require.NoError(t, again.Unlock(t.Context(), value(keytest.NewPassphrase)))
	require.NoError(t, w.Unlock(t.Context(), value(keytest.NewPassphrase)),
		"a wallet that was open before reads the file again")

	require.NotEqual(t, before, must.Get(os.ReadFile(filepath.Join(w.Dir(), keystore.Name)))(t))
}

// Whatever fails, the file is the very same.
func TestChangePassphraseFails(t *testing.T) {
	for name, tc := range map[string]struct {
		old, fresh string
		opt        Options
		code       coded.Code
	}{
		"wrong passphrase": {"correct horse battery stapler", keytest.NewPassphrase, Options{},
			coded.InvalidPassphrase},
		"none":           {"", keytest.NewPassphrase, Options{}, coded.WalletLocked},
		"a weak new one": {keytest.Passphrase, "short", Options{}, coded.SetupFailed},
		"no new one":     {keytest.Passphrase, "", Options{}, coded.SetupFailed},
		"no randomness": {keytest.Passphrase, keytest.NewPassphrase, Options{Rand: bytes.NewReader(nil)},
			coded.SetupFailed},
		"a cost too low": {keytest.Passphrase, keytest.NewPassphrase, Options{N: 1 << 10}, coded.SetupFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newTestWallet(t)
			before := must.Get(os.ReadFile(filepath.Join(w.Dir(), keystore.Name)))(t)
			err := ChangePassphrase(t.Context(), w, value(tc.old), value(tc.fresh), tc.opt)
			keytest.RequireCode(t, err, tc.code)
			require.Equal(t, before, must.Get(os.ReadFile(filepath.Join(w.Dir(), keystore.Name)))(t))
			requireOnlyKeystore(t, w.Dir())
		})
	}
}

// A new file that does not open, and a file that another process changed meanwhile, replace
// nothing.
func TestReplaceNeedsProof(t *testing.T) {
	w, _ := newTestWallet(t)
	path := filepath.Join(w.Dir(), keystore.Name)
	before := must.Get(os.ReadFile(path))(t)
	no := errors.New("no")
	require.ErrorIs(t, Replace(w.Dir(), before, []byte("new"), func([]byte) error { return no }), no)
	require.ErrorContains(t, Replace(w.Dir(), []byte("older"), []byte("new"), func([]byte) error {
		return nil
	}), "changed it meanwhile")
	require.Equal(t, before, must.Get(os.ReadFile(path))(t))
	requireOnlyKeystore(t, w.Dir())
}

// The cost never falls, and is raised where it was too low.
func TestChangeRaisesTheCost(t *testing.T) {
	f := &keytest.KDF{}
	for n, want := range map[int]uint64{keystore.MinN: DefaultN, keystore.MaxN: keystore.MaxN} {
		w := must.Get(Create(t.Context(), keytest.Home(t), value(keytest.Passphrase),
			Options{KDF: f.Derive, N: n}))(t)
		require.NoError(t, ChangePassphrase(t.Context(), w, value(keytest.Passphrase),
			value(keytest.NewPassphrase), Options{}))
		again := must.Get(wallet.Open(w.Dir()))(t)
		require.Equal(t, want, header(t, again.Dir()).N)
		require.Empty(t, again.Warnings)
	}
}
