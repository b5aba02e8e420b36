package sqldb

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// The lock excludes, and a process with much to do does not keep the others waiting.
func TestFileLockIsFair(t *testing.T) {
	home := t.TempDir()
	var inside atomic.Int32
	var count [3]atomic.Int32
	stop := make(chan struct{})
	var all sync.WaitGroup
	for process := range count {
		l := NewFileLock(home, "test")
		t.Cleanup(func() { l.Close() })
		for range []int{50, 1, 1}[process] { // one of them is busy
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					unlock, err := l.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two at once")
					}
					count[process].Add(1)
					inside.Add(-1)
					unlock()
				}
			})
		}
	}
	soon := func(done func() bool) { require.Eventually(t, done, 20*time.Second, time.Millisecond) }
	soon(func() bool { return min(count[0].Load(), count[1].Load(), count[2].Load()) > 0 }) // each has begun
	time.Sleep(300 * time.Millisecond)
	soon(func() bool { return count[0].Load() > 500 })
	close(stop)
	all.Wait()
	for process := range count {
		require.Greater(t, 20*count[process].Load(), count[0].Load(), "process %d: %d of %d turns", process,
			count[process].Load(), count[0].Load())
	}
}

// Whoever waits too long, or whose caller left, does not get the lock and leaves nothing behind.
func TestFileLockIsBounded(t *testing.T) {
	home := t.TempDir()
	holder, waiter := NewFileLock(home, "test"), NewFileLock(home, "test")
	unlock := must.Get(holder.Lock(t.Context()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, must.Err(waiter.Lock(ctx)), context.DeadlineExceeded)
	waiter.SetPatience(time.Millisecond, poll)
	_, err := waiter.Lock(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)

	require.NoError(t, holder.current.Close()) // as the kernel does when a process dies
	again := must.Get(waiter.Lock(t.Context()))(t)
	again()
	unlock()
	holder.current = nil

	require.NoError(t, holder.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(home, "run")))
	require.NoError(t, os.WriteFile(filepath.Join(home, "run"), nil, 0o600))
	_, err = holder.Lock(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
}
