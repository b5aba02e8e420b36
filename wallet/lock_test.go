package wallet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// One process locks them all: before their next signature, and soon if there is
// none. What has begun to be unlocked comes to nothing.
func TestLockAll(t *testing.T) {
	w, f := newTestWallet(t)
	var others []*Wallet
	for range 2 {
		o := must.Get(Open(w.dir))(t)
		o.derive = f.Derive
		t.Cleanup(func() { _ = o.Close() })
		others = append(others, o)
	}
	unlock := func() {
		t.Helper()
		for _, o := range others {
			require.NoError(t, o.Unlock(t.Context(), value(keytest.Passphrase)))
			require.False(t, o.Locked())
		}
	}
	for range 2 {
		unlock()
		require.NoError(t, Outside.LockAll(w.dir))
		keytest.RequireCode(t, must.Err(others[0].signDigest(t.Context(), [32]byte{1})), coded.WalletLocked)
		require.Eventually(t, func() bool { // nobody asks it
			others[1].mu.Lock()
			defer others[1].mu.Unlock()
			return others[1].keys == nil
		}, time.Minute, 10*time.Millisecond)
	}
	keytest.RequireCode(t, others[0].Unlock(t.Context(), func(context.Context) ([]byte, error) {
		require.NoError(t, Outside.LockAll(w.dir))
		return []byte(keytest.Passphrase), nil
	}), coded.WalletLocked)

	// whatever else becomes of the file locks, too, and hangs nobody
	elsewhere := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(elsewhere, []byte("x"), 0o600))
	path := filepath.Join(w.dir, LockName)
	for name, change := range map[string]func() error{
		"gone":     func() error { return os.Remove(path) },
		"a link":   func() error { return os.Symlink(elsewhere, path) },
		"anything": func() error { return os.WriteFile(path, []byte("y"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(path)
			require.NoError(t, Outside.LockAll(w.dir), name)
			unlock()
			if name == "a link" {
				require.NoError(t, os.Remove(path))
			}
			require.NoError(t, change(), name)
			require.True(t, others[0].Locked(), name)
			require.NoError(t, Outside.LockAll(w.dir), name)
		})
	}
	require.Equal(t, "x", string(must.Get(os.ReadFile(elsewhere))(t)))
}
