package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// another is a program that has nothing of our order: it opens the database and holds it.
func another(t *testing.T, home string, says ...string) (end func()) {
	t.Helper()
	db := must.Get(sql.Open("sqlite", filepath.Join(home, fileName)))(t)
	db.SetMaxOpenConns(1)
	for _, query := range says {
		must.Get(db.Exec(query))(t)
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

// A call's deadline holds, whoever holds the database and whoever else of this process waits for it.
func TestADeadlineHoldsWhileTheLedgerIsHeld(t *testing.T) {
	nothing := func(*Tx) error { return nil }
	for name, hold := range map[string]func(*testing.T, string) (end func()){
		"by a transaction": func(t *testing.T, home string) func() { return another(t, home, `BEGIN EXCLUSIVE`) },
		"by a process of this wallet that writes": func(t *testing.T, home string) func() {
			l := NewFileLock(home, "test")
			unlock := must.Get(l.Lock(t.Context()))(t)
			return func() { unlock(); require.NoError(t, l.Close()) }
		},
		"by a process that is next": func(t *testing.T, home string) func() {
			l := NewFileLock(home, "test")
			require.NoError(t, l.open())
			require.True(t, must.Get(LockFile(l.next))(t))
			return func() { require.NoError(t, errors.Join(unlockFile(l.next), l.Close())) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, home := homeWithTable(t)
			end := hold(t, home)
			inTime(t, "alone", func(ctx context.Context) error { return db.Write(ctx, nothing) })
			patiently := make(chan error, 1)
			go func() { patiently <- db.Write(context.Background(), nothing) }()
			require.Eventually(t, func() bool {
				db.writer.mu.Lock()
				defer db.writer.mu.Unlock()
				return db.writer.working
			}, 10*time.Second, time.Millisecond)
			inTime(t, "behind one who has time",
				func(ctx context.Context) error { return db.Write(ctx, nothing) })
			end()
			require.NoError(t, <-patiently)
			require.NoError(t, db.Write(t.Context(), nothing))
		})
	}
	t.Run("for itself alone", func(t *testing.T) {
		db, home := homeWithTable(t)
		require.NoError(t, db.Close())
		end := another(t, home, `PRAGMA locking_mode = EXCLUSIVE`, `BEGIN EXCLUSIVE`)
		again := openIn(t, home)
		look := func(tx *Tx) error { _, err := words(tx); return err }
		inTime(t, "opened", func(ctx context.Context) error { return again.View(ctx, look) })
		end()
		require.NoError(t, again.View(t.Context(), look))
	})
}

// A connection that was lent comes back without a transaction, however the borrower ended; the next
// reading is of now.
func TestAConnectionComesBackClean(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *DB) {
		ended := map[string]func(ctx context.Context, cancel func()) error{
			"well": func(ctx context.Context, _ func()) error {
				return db.View(ctx, func(tx *Tx) error { _, err := words(tx); return err })
			},
			"by an error": func(ctx context.Context, _ func()) error {
				return db.View(ctx, func(tx *Tx) error { _, _ = words(tx); return errors.New("no") })
			},
			"by leaving": func(ctx context.Context, cancel func()) error {
				return db.View(ctx, func(tx *Tx) error {
					_, _ = words(tx)
					cancel()
					return must.Err(words(tx))
				})
			},
			"by a panic": func(ctx context.Context, _ func()) error {
				defer func() { _ = recover() }()
				return db.View(ctx, func(tx *Tx) error { _, _ = words(tx); panic("no") })
			},
		}
		written := 0
		for name, borrow := range ended {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := borrow(ctx, cancel)
				require.Equal(t, name == "well" || name == "by a panic", err == nil, "%v", err)
				require.NoError(t, db.Write(t.Context(), put(name)))
				written++
				require.Equal(t, written, count(t, db))
				require.Zero(t, db.read.Stats().InUse)
			})
		}
	})
}

// A caller that leaves does not wait for a long look; the database goes on.
func TestALongLookEndsWithItsCaller(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := db.View(ctx, func(tx *Tx) error {
			var n int
			return tx.Row(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000000)
				SELECT count(*) FROM n`).Scan(&n)
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
		require.Less(t, time.Since(begun), 5*time.Second)
		require.NoError(t, db.Write(t.Context(), put("after")))
	})
}

// Readers beyond the connections wait; the database may be closed under one that reads.
func TestMoreReadersThanConnections(t *testing.T) {
	db, _ := homeWithTable(t)
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	for range readers {
		go func() {
			ended <- db.View(context.Background(), func(tx *Tx) error {
				begun <- struct{}{}
				<-end
				return must.Err(words(tx))
			})
		}()
	}
	for range readers {
		<-begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, db.View(ctx, func(*Tx) error { return nil }), context.DeadlineExceeded)
	require.NoError(t, db.Close())
	close(end)
	for range readers {
		require.NoError(t, <-ended)
	}
	require.Error(t, db.View(t.Context(), func(*Tx) error { return nil }))
}

// With synchronous=FULL a commit is on the disk when it returns.
func TestEveryConnectionFlushes(t *testing.T) {
	db, _ := homeWithTable(t)
	for name, pool := range map[string]*sql.DB{"write": db.write, "read": db.read} {
		var synchronous int
		var mode string
		require.NoError(t, pool.QueryRow(`PRAGMA synchronous`).Scan(&synchronous))
		require.NoError(t, pool.QueryRow(`PRAGMA journal_mode`).Scan(&mode))
		require.Equal(t, 2, synchronous, name)
		require.Equal(t, "wal", mode, name)
	}
}
