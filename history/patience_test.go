package history

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// another is a program that has nothing of our order: it opens the ledger and holds it.
func another(t *testing.T, home string, says ...string) (end func()) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(home, FileName))
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	for _, query := range says {
		_, err := db.Exec(query)
		require.NoError(t, err)
	}
	end = sync.OnceFunc(func() { _ = db.Close() })
	t.Cleanup(end)
	return end
}

// inTime calls with a little time, and requires that the call ends by it: lockWait is what it would
// take otherwise.
func inTime(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lockWait/50)
	defer cancel()
	begun := time.Now()
	err := call(ctx)
	require.Less(t, time.Since(begun), lockWait*9/10, what)
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%s: %v", what, err)
	require.ErrorIs(t, err, context.DeadlineExceeded, what)
}

// A call's deadline holds, whoever holds the ledger and whoever else of this process waits for it.
func TestADeadlineHoldsWhileTheLedgerIsHeld(t *testing.T) {
	nothing := func(*tx) error { return nil }
	for name, hold := range map[string]func(*testing.T, *Store, string) (end func()){
		"by a transaction": func(t *testing.T, _ *Store, home string) func() {
			return another(t, home, `BEGIN EXCLUSIVE`)
		},
		"by a process of this wallet that writes": func(t *testing.T, _ *Store, home string) func() {
			l := newFileLock(home, "ledger")
			unlock, err := l.Lock(t.Context())
			require.NoError(t, err)
			return func() { unlock(); require.NoError(t, l.close()) }
		},
		"by a process that is next": func(t *testing.T, _ *Store, home string) func() {
			l := newFileLock(home, "ledger")
			require.NoError(t, l.open())
			held, err := lockFile(l.next)
			require.NoError(t, err)
			require.True(t, held)
			return func() { require.NoError(t, errors.Join(unlockFile(l.next), l.close())) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, home := newStore(t)
			require.NoError(t, s.tx(t.Context(), nothing))
			end := hold(t, s, home)
			inTime(t, "alone", func(ctx context.Context) error { return s.tx(ctx, nothing) })
			patiently := make(chan error, 1)
			go func() { patiently <- s.tx(context.Background(), nothing) }()
			require.Eventually(t, func() bool {
				s.queue.mu.Lock()
				defer s.queue.mu.Unlock()
				return s.queue.working
			}, 10*time.Second, time.Millisecond)
			inTime(t, "behind one who has time",
				func(ctx context.Context) error { return s.tx(ctx, nothing) })
			inTime(t, "that need not last", func(ctx context.Context) error {
				return s.commitNoSync(ctx, nothing)
			})
			end()
			require.NoError(t, <-patiently)
			require.NoError(t, s.tx(t.Context(), nothing))
		})
	}
	t.Run("its checkpoint", func(t *testing.T) {
		s, _, home := newStore(t)
		l := newFileLock(home, "mark")
		unlock, err := l.Lock(t.Context())
		require.NoError(t, err)
		defer func() { unlock(); require.NoError(t, l.close()) }()
		inTime(t, "a checkpoint", func(ctx context.Context) error {
			return s.AtHead(ctx, func(Head) error { return nil })
		})
	})
	t.Run("for itself alone", func(t *testing.T) {
		s, _, home := newStore(t)
		require.NoError(t, s.Close())
		end := another(t, home, `PRAGMA locking_mode = EXCLUSIVE`, `BEGIN EXCLUSIVE`)
		inTime(t, "opened", func(ctx context.Context) error {
			other, err := Open(ctx, home, Options{})
			if err == nil {
				other.Close()
			}
			return err
		})
		end()
		other, err := Open(t.Context(), home, Options{})
		require.NoError(t, err)
		require.NoError(t, other.Close())
	})
}

// Whoever leaves the queue takes nothing along: the others are written, each once, and somebody always leads.
func TestLeavingTheQueue(t *testing.T) {
	s, _, home := newStore(t)
	for round := range 20 {
		end := another(t, home, `BEGIN IMMEDIATE`)
		var all sync.WaitGroup
		errs := make([]error, 30)
		ran := make([]int, len(errs))
		for i := range errs {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			all.Go(func() {
				errs[i] = s.enqueue(ctx, &change{durable: i%2 != 0,
					f: func(*tx) error { ran[i]++; return nil }})
			})
			if i%3 == round%3 {
				all.Go(cancel)
			}
		}
		end()
		all.Wait()
		for i, err := range errs {
			if err == nil {
				require.Equal(t, 1, ran[i])
				continue
			}
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, ran[i], "it ran, and was said not to have")
		}
		require.Empty(t, s.queue.waiting)
		require.False(t, s.queue.working)
	}
}
