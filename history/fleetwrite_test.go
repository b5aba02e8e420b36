package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/postgres"
	"x402-wallet/x402"
)

// A change whose commit got no answer is made again, and has then run once.
func TestAChangeIsRepeatedByItsName(t *testing.T) {
	s, _ := newFleetStore(t)
	n := 0
	c := &change{durable: true, f: func(t *tx) error {
		n++
		return t.label(fmt.Sprint("ses_", n), "name")
	}}
	for range 3 {
		require.NoError(t, s.fleet.pool.With(t.Context(), func(pg *postgres.Conn) error {
			return s.fleet.attempt(t.Context(), s, c, fleetConn{pg}, "op_same")
		}))
	}
	require.Equal(t, 1, n)
	labels, err := s.Labels(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"ses_1": "name"}, labels)
}

// A change whose connection is gone in its middle is made again from its beginning.
func TestAChangeWhoseConnectionIsGone(t *testing.T) {
	s, _ := newFleetStore(t)
	n := 0
	require.NoError(t, s.tx(t.Context(), func(t *tx) error {
		n++
		if err := t.label("ses_a", fmt.Sprint("try ", n)); err != nil {
			return err
		}
		if n == 1 {
			_, err := t.exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		}
		return nil
	}))
	require.Equal(t, 2, n)
	labels, err := s.Labels(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"ses_a": "try 2"}, labels)
}

// What the server refused in a change is no success, though the change goes on.
func TestAChangeThatOverlooksAnError(t *testing.T) {
	s, _ := newFleetStore(t)
	err := s.tx(t.Context(), func(t *tx) error {
		_ = t.label("ses_a", "name")
		_, _ = t.exec(`SELECT nothing`)
		return nil
	})
	require.True(t, x402.HasCode(err, x402.Internal), "%v", err)
	labels, err := s.Labels(t.Context())
	require.NoError(t, err)
	require.Empty(t, labels)
}

// The names of changes that nobody repeats any more go, some at a time, and seldom.
func TestOldOperationsAreForgotten(t *testing.T) {
	s, c := newFleetStore(t)
	now := c.now()
	old := func(n int, at time.Time) {
		testFleet.sql.run(
			t,
			fmt.Sprintf(`INSERT INTO operations SELECT 'op_%d_' || n, %d FROM generate_series(1, %d) AS n`,
				at.UnixMicro(), at.UnixMicro(), n),
		)
	}
	kept := func() string {
		return testFleet.sql.one(t, `SELECT count(*)::text FROM operations WHERE id LIKE 'op\_%\_%'`)
	}
	change := func() {
		require.NoError(t, s.tx(context.Background(), func(*tx) error { return nil }))
	}
	s.fleet.swept = time.Time{} // it looked when its rules were applied, or not
	old(2*operationsForgotten+7, now.Add(-operationsKept-time.Second))
	old(3, now.Add(-operationsKept+time.Minute))
	for _, left := range []int{operationsForgotten + 7, 7, 0, 0} {
		change()
		require.Equal(t, fmt.Sprint(left+3), kept())
	}
	old(5, now.Add(-operationsKept-time.Hour))
	change()
	require.Equal(t, "8", kept(), "it looked a moment ago")
}
