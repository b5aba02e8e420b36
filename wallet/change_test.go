//go:build unix

package wallet

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/coded"
)

func TestChangePassphrase(t *testing.T) {
	w, f := newTestWallet(t)
	before, err := os.ReadFile(filepath.Join(w.dir, keystoreName))
	require.NoError(t, err)
	require.NoError(t, w.ChangePassphrase(t.Context(), value(testPassphrase), value(newPassphrase),
		Options{}))
	require.True(t, w.Locked(), "it is not unlocked by this")
	requireOnlyKeystore(t, w.dir)

	again, err := Open(w.dir)
	require.NoError(t, err)
	again.derive = f.derive
	requireAddresses(t, again, w.header.solana, w.header.evm)
	require.Equal(t, w.header.created, again.header.created)
	require.NotEqual(t, w.header.salt, again.header.salt)
	requireCode(t, again.Unlock(t.Context(), value(testPassphrase)), coded.InvalidPassphrase)
	require.NoError(t, again.Unlock(t.Context(), value(newPassphrase)))
	require.NoError(t, w.Unlock(t.Context(), value(newPassphrase)),
		"a wallet that was open before reads the file again")

	after, err := os.ReadFile(filepath.Join(w.dir, keystoreName))
	require.NoError(t, err)
	require.NotEqual(t, before, after)
}

// Whatever fails, the file is the very same.
func TestChangePassphraseFails(t *testing.T) {
	for name, tc := range map[string]struct {
		old, fresh string
		opt        Options
		code       coded.Code
	}{
		"wrong passphrase": {"correct horse battery stapler", newPassphrase, Options{},
			coded.InvalidPassphrase},
		"none":           {"", newPassphrase, Options{}, coded.WalletLocked},
		"a weak new one": {testPassphrase, "short", Options{}, coded.SetupFailed},
		"no new one":     {testPassphrase, "", Options{}, coded.SetupFailed},
		"no randomness": {testPassphrase, newPassphrase, Options{Rand: bytes.NewReader(nil)},
			coded.SetupFailed},
		"a cost too low": {testPassphrase, newPassphrase, Options{N: 1 << 10}, coded.SetupFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newTestWallet(t)
			before, err := os.ReadFile(filepath.Join(w.dir, keystoreName))
			require.NoError(t, err)
			requireCode(t, w.ChangePassphrase(t.Context(), value(tc.old), value(tc.fresh), tc.opt), tc.code)
			after, err := os.ReadFile(filepath.Join(w.dir, keystoreName))
			require.NoError(t, err)
			require.Equal(t, before, after)
			requireOnlyKeystore(t, w.dir)
		})
	}
}

// A new file that does not open, and a file that another process changed meanwhile, replace
// nothing.
func TestReplaceNeedsProof(t *testing.T) {
	w, _ := newTestWallet(t)
	path := filepath.Join(w.dir, keystoreName)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	no := errors.New("no")
	require.ErrorIs(t, replace(w.dir, before, []byte("new"), func([]byte) error { return no }), no)
	require.ErrorContains(t, replace(w.dir, []byte("older"), []byte("new"), func([]byte) error {
		return nil
	}), "changed it meanwhile")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	requireOnlyKeystore(t, w.dir)
}

// The cost never falls, and is raised where it was too low.
func TestChangeRaisesTheCost(t *testing.T) {
	f := &fakeKDF{}
	for n, want := range map[int]uint64{minN: defaultN, maxN: maxN} {
		w, err := Create(t.Context(), home(t), value(testPassphrase), Options{derive: f.derive, N: n})
		require.NoError(t, err)
		require.NoError(t, w.ChangePassphrase(t.Context(), value(testPassphrase), value(newPassphrase),
			Options{}))
		again, err := Open(w.dir)
		require.NoError(t, err)
		require.Equal(t, want, again.header.n)
		require.Empty(t, again.Warnings)
	}
}
