package history

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection that was lent comes back without a transaction, however the borrower ended; the next
// reading is of now.
func TestAConnectionComesBackClean(t *testing.T) {
	s, _, _ := newStore(t)
	count := func(tx *tx) (n int, err error) { return n, tx.row(`SELECT count(*) FROM payments`).Scan(&n) }
	ended := map[string]func(ctx context.Context, cancel func()) error{
		"well": func(ctx context.Context, _ func()) error {
			return s.view(ctx, func(tx *tx) error { _, err := count(tx); return err })
		},
		"by an error": func(ctx context.Context, _ func()) error {
			return s.view(ctx, func(tx *tx) error { _, _ = count(tx); return errors.New("no") })
		},
		"by leaving": func(ctx context.Context, cancel func()) error {
			return s.view(ctx, func(tx *tx) error {
				_, _ = count(tx)
				cancel()
				_, err := count(tx)
				return err
			})
		},
		"by a panic": func(ctx context.Context, _ func()) error {
			defer func() { _ = recover() }()
			return s.view(ctx, func(tx *tx) error { _, _ = count(tx); panic("no") })
		},
	}
	paid := 0
	for name, borrow := range ended {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := borrow(ctx, cancel)
			require.Equal(t, name == "well" || name == "by a panic", err == nil, "%v", err)
			pay(t, s, testHold(1), Reserved)
			paid++
			require.NoError(t, s.view(t.Context(), func(tx *tx) error {
				n, err := count(tx)
				require.Equal(t, paid, n)
				return err
			}))
			require.Len(t, s.read.idle, 1, "there was never need of another")
		})
	}
}

// A caller that leaves does not wait for a long look; the ledger goes on.
func TestALongLookEndsWithItsCaller(t *testing.T) {
	s, _, _ := newStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := s.view(ctx, func(tx *tx) error {
		var n int
		return tx.slowRow(
			`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000000)
				SELECT count(*) FROM n`).Scan(&n)
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	pay(t, s, testHold(1), Settled)
}

// Readers beyond the connections wait; the ledger may be closed under one that reads.
func TestMoreReadersThanConnections(t *testing.T) {
	s, _, _ := newStore(t)
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	most := cap(s.read.slots)
	for range most {
		go func() {
			ended <- s.view(context.Background(), func(tx *tx) error {
				begun <- struct{}{}
				<-end
				var n int
				return tx.row(`SELECT count(*) FROM payments`).Scan(&n)
			})
		}()
	}
	for range most {
		<-begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.view(ctx, func(*tx) error { return nil }), context.DeadlineExceeded)
	require.NoError(t, s.Close())
	close(end)
	for range most {
		require.NoError(t, <-ended)
	}
	require.Empty(t, s.read.idle)
	require.Error(t, s.view(t.Context(), func(*tx) error { return nil }))
}
