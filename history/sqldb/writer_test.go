package sqldb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// occupy keeps the one writer busy, so that changes gather behind it; release lets it go on.
func occupy(t *testing.T, db *DB) (release func()) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once // a transaction may be made again
	go func() {
		_ = db.Write(context.Background(), func(*Tx) error {
			once.Do(func() { close(begun) })
			<-end
			return nil
		})
	}()
	<-begun
	return func() { close(end) }
}

// Changes that share a transaction are each whole or nothing, and each hears of its own.
func TestChangesTogether(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *DB) {
		release := occupy(t, db)
		var all sync.WaitGroup
		errs, refusal := make([]error, 30), x402.Errorf(x402.BudgetExceeded, "no")
		panicked := make([]any, len(errs))
		for i := range errs {
			all.Go(func() {
				defer func() { panicked[i] = recover() }()
				errs[i] = db.Write(context.Background(), func(tx *Tx) error {
					if err := put(fmt.Sprint(i))(tx); err != nil {
						return err
					}
					switch i % 3 {
					case 1:
						return refusal
					case 2:
						panic(i)
					}
					return nil
				})
			})
		}
		release()
		all.Wait()
		for i, err := range errs {
			require.Equal(t, i%3 == 0, has(t, db, fmt.Sprint(i)))
			switch i % 3 {
			case 0:
				require.NoError(t, err)
			case 1:
				require.ErrorIs(t, err, refusal)
			case 2:
				require.Equal(t, i, panicked[i], "the caller's panic")
			}
		}
	})
}

// What the changes of a transaction know in common is forgotten with a change that is undone.
func TestWhatIsSharedIsForgotten(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *DB) {
		release := occupy(t, db)
		var all sync.WaitGroup
		next := func(f func(*Tx) error) {
			before := db.Waiting()
			all.Go(func() { _ = db.Write(context.Background(), f) })
			require.Eventually(t, func() bool { return db.Waiting() > before }, time.Minute, time.Millisecond)
		}
		var found []any
		look := func(tx *Tx) error {
			found = append(found, tx.Shared)
			return nil
		}
		next(look)
		next(func(tx *Tx) error { tx.Shared = "a"; return nil })
		next(look)
		next(func(tx *Tx) error { tx.Shared = "b"; return errors.New("no") })
		next(look)
		release()
		all.Wait()
		require.Equal(t, []any{nil, "a", nil}, found)
	})
}

// Trouble with the database ends them all: none of them returns as if it were on the disk.
func TestTroubleIsEverybodys(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *DB) {
		release := occupy(t, db)
		var all sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			all.Go(func() {
				errs[i] = db.Write(context.Background(), func(tx *Tx) error {
					if err := put(fmt.Sprint(i))(tx); err != nil {
						return err
					}
					if i == 3 {
						return must.Err(tx.Exec(`INSERT INTO nowhere VALUES (1)`))
					}
					return nil
				})
			})
		}
		gathered := db.Waiting()
		release()
		all.Wait()
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		require.Equal(t, len(errs)-failed, count(t, db), "%d gathered", gathered)
		require.NotZero(t, failed)
		require.NoError(t, db.Write(t.Context(), put("after")))
	})
}

func TestACancelledCallCommitsNothing(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, db.Write(ctx, func(*Tx) error { return errors.New("asked") }), context.Canceled)
	})
}

// Whoever leaves the queue takes nothing along: the others are written, each once, and somebody always leads.
func TestLeavingTheQueue(t *testing.T) {
	db, home := homeWithTable(t)
	for round := range 20 {
		end := another(t, home, `BEGIN IMMEDIATE`)
		var all sync.WaitGroup
		errs := make([]error, 30)
		ran := make([]int, len(errs))
		for i := range errs {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			all.Go(func() { errs[i] = db.Write(ctx, func(*Tx) error { ran[i]++; return nil }) })
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
		require.Zero(t, db.Waiting())
		require.False(t, db.writer.working)
	}
}

// Who waits for a change hears of it once it is written, and of one that is undone not at all.
func TestAfterCommit(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *DB) {
		release := occupy(t, db)
		refusal := x402.Errorf(x402.BudgetExceeded, "no")
		heard := make([]int, 6)
		var all sync.WaitGroup
		for i := range heard {
			all.Go(func() {
				_ = db.Write(context.Background(), func(tx *Tx) error {
					tx.AfterCommit(func() { heard[i]++ })
					if i%2 == 1 {
						return refusal
					}
					return put(fmt.Sprint(i))(tx)
				})
			})
		}
		release()
		all.Wait()
		require.Equal(t, []int{1, 0, 1, 0, 1, 0}, heard)
	})
}
