package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/config"
	"x402-wallet/internal/ownfile"
	"x402-wallet/tools"
)

// descriptors counts how often this process has a file open.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range open {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && target == path {
			n++
		}
	}
	return n
}

// However often a process opens its wallet, for other accounts and under other rules, SQLite has the ledger
// open once, and its locks stay.
func TestLedger_OpenedOnce(t *testing.T) {
	a, text := newHome(t)
	path := filepath.Join(a.home, history.FileName)

	var opened []*tools.Wallet
	for range 3 {
		w, err := a.OpenWallet(t.Context(), nil, nil)
		require.NoError(t, err)
		_, err = w.Store.Head(t.Context())
		require.NoError(t, err)
		opened = append(opened, w)
		text = append(text, "\n# another version of the rules\n"...)
		require.NoError(t, ownfile.Write(filepath.Join(a.home, config.FileName), text))
	}
	once := descriptors(t, path)
	require.NotZero(t, once)
	require.True(t, testworld.HoldsLock(t, os.Getpid(), path))

	ledger, err := a.OpenLedger(t.Context())
	require.NoError(t, err)
	_, err = ledger.Head(t.Context())
	require.NoError(t, err)
	require.NoError(t, ledger.Close())
	for _, w := range opened[:2] {
		require.NoError(t, w.Close())
		require.NoError(t, w.Close(), "once more does no harm")
	}
	require.True(t, testworld.HoldsLock(t, os.Getpid(), path))
	require.Equal(t, once, descriptors(t, path))
	_, err = opened[2].Store.Head(t.Context())
	require.NoError(t, err, "it is still open for the last one")

	require.NoError(t, opened[2].Close())
	require.Zero(t, descriptors(t, path))
	require.NoFileExists(t, path+"-wal", "the last one to close tidies up")
	again, err := a.OpenWallet(t.Context(), nil, nil)
	require.NoError(t, err)
	_, err = again.Store.Head(t.Context())
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// A backup that was put in the ledger's place is another ledger: it is opened, and the old one is not shared.
func TestLedger_Replaced(t *testing.T) {
	a := &app{home: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	require.NoError(t, ledgers.Create(t.Context(), a.home, history.Options{}))
	first, err := a.OpenLedger(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close()) }()
	id, err := first.LedgerID(t.Context())
	require.NoError(t, err)

	other := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), other, history.Options{}))
	require.NoError(t, os.Rename(filepath.Join(other, history.FileName),
		filepath.Join(a.home, history.FileName)))
	for _, end := range []string{"-wal", "-shm"} { // as whoever restores a backup has to
		_ = os.Remove(filepath.Join(a.home, history.FileName+end))
	}
	second, err := a.OpenLedger(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, second.Close()) }()
	now, err := second.LedgerID(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, id, now)
	require.Error(t, first.InPlace())
}
