package history

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// Turns exclude each other, and a process with much to do does not keep the others waiting.
func TestTurns(t *testing.T) {
	home := t.TempDir()
	var inside atomic.Int32
	var count [3]atomic.Int32
	stop := make(chan struct{})
	var all sync.WaitGroup
	for process := range count {
		turns := newTurns(home, "test")
		t.Cleanup(func() { turns.close() })
		for range []int{50, 1, 1}[process] { // one of them is busy
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					give, err := turns.take(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two at once")
					}
					count[process].Add(1)
					inside.Add(-1)
					give()
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

// Who waits too long, or whose caller left, gets no turn and leaves nothing behind.
func TestTurnsAreBounded(t *testing.T) {
	home := t.TempDir()
	holder, waiter := newTurns(home, "test"), newTurns(home, "test")
	give, err := holder.take(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = waiter.take(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waiter.patience = time.Millisecond
	_, err = waiter.take(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)

	require.NoError(t, holder.writing.Close()) // as the kernel does when a process dies
	again, err := waiter.take(t.Context())
	require.NoError(t, err)
	again()
	give()
	holder.writing = nil

	require.NoError(t, holder.close())
	require.NoError(t, os.RemoveAll(filepath.Join(home, "run")))
	require.NoError(t, os.WriteFile(filepath.Join(home, "run"), nil, 0o600))
	_, err = holder.take(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
}
