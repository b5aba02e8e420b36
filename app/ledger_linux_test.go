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
	"x402-wallet/internal/must"
	"x402-wallet/internal/ownfile"
	"x402-wallet/tools"
)

// descriptors counts how often this process has a file open.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	open := must.Get(os.ReadDir("/proc/self/fd"))(t)
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
		w := must.Get(a.OpenWallet(t.Context(), nil, nil))(t)
		must.Get(w.Store.Head(t.Context()))(t)
		opened = append(opened, w)
		text = append(text, "\n# another version of the rules\n"...)
		require.NoError(t, ownfile.Write(filepath.Join(a.home, config.FileName), text))
	}
	once := descriptors(t, path)
	require.NotZero(t, once)
	require.True(t, testworld.HoldsLock(t, os.Getpid(), path))

	ledger := must.Get(a.OpenLedger(t.Context()))(t)
	must.Get(ledger.Head(t.Context()))(t)
	require.NoError(t, ledger.Close())
	for _, w := range opened[:2] {
		require.NoError(t, w.Close())
		require.NoError(t, w.Close(), "once more does no harm")
	}
	require.True(t, testworld.HoldsLock(t, os.Getpid(), path))
	require.Equal(t, once, descriptors(t, path))
	require.NoError(t, must.Err(opened[2].Store.Head(t.Context())), "it is still open for the last one")

	require.NoError(t, opened[2].Close())
	require.Zero(t, descriptors(t, path))
	require.NoFileExists(t, path+"-wal", "the last one to close tidies up")
	again := must.Get(a.OpenWallet(t.Context(), nil, nil))(t)
	must.Get(again.Store.Head(t.Context()))(t)
	require.NoError(t, again.Close())
}

// A backup that was put in the ledger's place is another ledger: it is opened, and the old one is not shared.
func TestLedger_Replaced(t *testing.T) {
	a := &app{home: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	require.NoError(t, ledgers.Create(t.Context(), a.home, history.Options{}))
	first := must.Get(a.OpenLedger(t.Context()))(t)
	defer func() { require.NoError(t, first.Close()) }()
	id := must.Get(first.LedgerID(t.Context()))(t)

	other := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), other, history.Options{}))
	require.NoError(t, os.Rename(filepath.Join(other, history.FileName),
		filepath.Join(a.home, history.FileName)))
	for _, end := range []string{"-wal", "-shm"} { // as whoever restores a backup has to
		_ = os.Remove(filepath.Join(a.home, history.FileName+end))
	}
	second := must.Get(a.OpenLedger(t.Context()))(t)
	defer func() { require.NoError(t, second.Close()) }()
	require.NotEqual(t, id, must.Get(second.LedgerID(t.Context()))(t))
	require.Error(t, first.InPlace())
}
