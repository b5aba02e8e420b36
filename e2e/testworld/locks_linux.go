package testworld

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// HoldsLock reports whether a process has a POSIX lock on a file, by /proc/locks. The kernel gives that list
// in pieces, and leaves a lock out if others come and go meanwhile: so it is read again for a second. A lock
// that SQLite lost does not come back.
func HoldsLock(t testing.TB, pid int, path string) bool {
	t.Helper()
	var stat syscall.Stat_t
	require.NoError(t, syscall.Stat(path, &stat))
	process, inode := fmt.Sprintf(" %d ", pid), fmt.Sprintf(":%d ", stat.Ino)
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		locks, err := os.ReadFile("/proc/locks")
		require.NoError(t, err)
		for line := range bytes.Lines(locks) {
			text := string(line)
			if strings.Contains(text, "POSIX") && strings.Contains(text, process) &&
				strings.Contains(text, inode) {
				return true
			}
		}
	}
	return false
}
