package processes_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/processes"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/sqlite"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// A lock file that cannot be opened (a failing disk, no descriptor left) tells nothing. The
// process behind it then counts as ended, because the other mistake pays twice.
func TestAProcessOfUnknownStateCountsAsEnded(t *testing.T) {
	home := t.TempDir()
	s := processes.Files(home)
	dir := filepath.Join(home, "run")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	// cannot be opened for writing, not even by root
	require.NoError(t, os.Mkdir(filepath.Join(dir, "run_unreadable"), 0o700))
	require.False(t, s.Alive("run_unreadable"))
}

// Two processes may check at once whether a third is gone. Each finds it gone: one that mistook the
// other for it would take an open payment for one that somebody waits for, and pay again.
func TestAnEndedProcessIsEndedForEveryReader(t *testing.T) {
	home := t.TempDir()
	s := processes.Files(home)
	dir := filepath.Join(home, "run")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	var found sync.Map
	for range 200 { // of one at a time who removes the file
		require.NoError(t, os.WriteFile(filepath.Join(dir, "run_ended"), nil, 0o600))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { found.Store(s.Alive("run_ended"), true) })
		}
		all.Wait()
	}
	_, alive := found.Load(true)
	require.False(t, alive)

	file := must.Get(os.Create(filepath.Join(dir, "run_ended")))(t)
	defer file.Close()
	held := must.Get(sqldb.ShareFile(file))(t) // another process, in the middle of its look
	require.True(t, held)
	require.False(t, s.Alive("run_ended"))
}

// A file system that gives one lock to two processes is none for a wallet.
func TestAFileSystemWithoutLocks(t *testing.T) {
	opened, _, home := historytest.SQLite(t, historytest.Options())
	require.NoError(t, opened.Close())
	db := must.Get(sqlite.Open(sqlite.File{Home: home, Name: history.FileName}))(t)
	p := processes.Files(home)
	processes.SetLock(p, func(*os.File) (bool, error) { return true, nil })
	s, err := history.New(t.Context(), db, home, func() history.Process { return p }, historytest.Options())
	require.NoError(t, err)
	defer s.Close()
	_, err = historytest.Reserve(t.Context(), s, historytest.Hold(1))
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, "no working locks")
	left := must.Get(os.ReadDir(filepath.Join(home, "run")))(t)
	for _, file := range left {
		require.NotContains(t, file.Name(), "run_", "it leaves no lock behind")
	}
	processes.SetLock(p, sqldb.LockFile)
	historytest.Pay(t, s, historytest.Hold(1), history.Reserved)
}
