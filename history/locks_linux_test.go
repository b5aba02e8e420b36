package history

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// hasLock reports whether this process holds a POSIX lock on a file, by /proc/locks. The kernel gives that
// list in pieces, and leaves a lock out if others come and go meanwhile: so it is read again for a while. A
// lock that SQLite lost does not come back.
func hasLock(t *testing.T, path string) bool {
	t.Helper()
	var stat syscall.Stat_t
	require.NoError(t, syscall.Stat(path, &stat))
	process, inode := fmt.Sprintf(" %d ", os.Getpid()), fmt.Sprintf(":%d ", stat.Ino)
	for range 30 {
		locks := must.Get(os.ReadFile("/proc/locks"))(t)
		for line := range bytes.Lines(locks) {
			text := string(line)
			if strings.Contains(text, "POSIX") && strings.Contains(text, process) &&
				strings.Contains(text, inode) {
				return true
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// SQLite's locks on the ledger outlive whatever else this process does with its files. Without them another
// program would take itself for the last user, and remove the log under the wallet.
func TestLocks_AreKept(t *testing.T) {
	s, _, home := emptyStore(t)
	pay(t, s, testHold(1), Settled)
	path := filepath.Join(home, FileName)
	require.True(t, hasLock(t, path))
	require.True(t, hasLock(t, path+"-shm"))

	for name, f := range map[string]func() error{
		"another Store": func() error {
			other, err := Open(t.Context(), home, Options{Contents: Keeper})
			if err != nil {
				return err
			}
			return other.Close()
		},
		"a shared Store": func() error {
			shared, open := s.Share(Options{Contents: Keeper})
			require.True(t, open)
			return shared.Close()
		},
		"a backup": func() error {
			return BackUpTo(t.Context(), s, filepath.Join(t.TempDir(), "b"))
		},
		"verify": func() error { _, err := s.Verify(t.Context(), Head{}); return err },
		"create once more": func() error {
			require.Error(t, Create(t.Context(), home, Options{}))
			return nil
		},
		"in place": s.InPlace,
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, f())
			require.True(t, hasLock(t, path))
			require.True(t, hasLock(t, path+"-shm"))
		})
	}
	pay(t, s, testHold(2), Settled)
}

// The locks test can fail: this is what the kernel does when any descriptor of the file is closed.
func TestLocks_AreLostByAnotherDescriptor(t *testing.T) {
	s, _, home := emptyStore(t)
	pay(t, s, testHold(1), Settled)
	path := filepath.Join(home, FileName)
	require.NoError(t, must.Get(os.Open(path))(t).Close())
	require.False(t, hasLock(t, path))
}

// A log that was taken away, or that is another file, gets no commit: nobody would find it there.
func TestLog_TakenAway(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, log string){
		"removed": func(t *testing.T, log string) { require.NoError(t, os.Remove(log)) },
		"replaced": func(t *testing.T, log string) {
			text := must.Get(os.ReadFile(log))(t) // no lock is on the log itself
			require.NoError(t, os.Remove(log))
			require.NoError(t, os.WriteFile(log, text, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, home := emptyStore(t)
			pay(t, s, testHold(1), Settled)
			take(t, filepath.Join(home, FileName+"-wal"))
			require.ErrorContains(t, must.Err(reserve(s, testHold(2))), FileName+"-wal")
		})
	}
}
