package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// occupy keeps the one writer busy, so that changes gather behind it; release lets it go on.
func occupy(t *testing.T, s *Store) (release func()) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.tx(context.Background(), func(*tx) error { close(begun); <-end; return nil })
	}()
	<-begun
	return func() { close(end) }
}

// Changes that share a transaction are each whole or nothing, and each hears of its own.
func TestChangesTogether(t *testing.T) {
	s, _, _ := newStore(t)
	release := occupy(t, s)
	var all sync.WaitGroup
	insert := func(tx *tx, i int) error {
		_, err := tx.exec(`INSERT INTO meta VALUES (?, 'x')`, fmt.Sprint("key ", i))
		return err
	}
	errs, refusal := make([]error, 30), x402.Errorf(x402.BudgetExceeded, "no")
	panicked := make([]any, len(errs))
	for i := range errs {
		all.Go(func() {
			defer func() { panicked[i] = recover() }()
			errs[i] = s.enqueue(context.Background(), func(tx *tx) error {
				if err := insert(tx, i); err != nil {
					return err
				}
				switch i % 3 {
				case 1:
					return refusal
				case 2:
					panic(i)
				}
				return nil
			}, i%2 != 0)
		})
	}
	release()
	all.Wait()
	for i, err := range errs {
		var there int
		require.NoError(t, s.read.QueryRow(`SELECT count(*) FROM meta WHERE key = ?`,
			fmt.Sprint("key ", i)).Scan(&there))
		switch i % 3 {
		case 0:
			require.NoError(t, err)
			require.Equal(t, 1, there)
		case 1:
			require.ErrorIs(t, err, refusal)
			require.Zero(t, there)
		case 2:
			require.Equal(t, i, panicked[i], "the caller's panic")
			require.Zero(t, there)
		}
	}
}

// Trouble with the ledger ends them all: none of them returns as if it were on the disk.
func TestTroubleIsEverybodys(t *testing.T) {
	s, _, _ := newStore(t)
	release := occupy(t, s)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			errs[i] = s.tx(context.Background(), func(tx *tx) error {
				if _, err := tx.exec(`INSERT INTO meta VALUES (?, 'x')`, fmt.Sprint("key ", i)); err != nil {
					return err
				}
				if i == 3 {
					_, err := tx.exec(`INSERT INTO nowhere VALUES (1)`)
					return err
				}
				return nil
			})
		})
	}
	s.queue.mu.Lock()
	gathered := len(s.queue.waiting)
	s.queue.mu.Unlock()
	release()
	all.Wait()
	var there, failed int
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	require.NoError(t, s.read.QueryRow(`SELECT count(*) FROM meta WHERE key LIKE 'key %'`).Scan(&there))
	require.Equal(t, len(errs)-failed, there, "%d gathered", gathered)
	require.NotZero(t, failed)
	require.NoError(t, s.tx(t.Context(), func(tx *tx) error {
		_, err := tx.exec(`INSERT INTO meta VALUES ('after', 'x')`)
		return err
	}))
}

func TestACancelledCallCommitsNothing(t *testing.T) {
	s, _, _ := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.tx(ctx, func(*tx) error { return errors.New("asked") })
	require.ErrorIs(t, err, context.Canceled)
}
