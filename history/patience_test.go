package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// A call's deadline holds, whoever holds the checkpoint.
func TestADeadlineHoldsWhileTheCheckpointIsHeld(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		l := sqldb.NewFileLock(s.home, "mark")
		unlock, err := l.Lock(t.Context())
		require.NoError(t, err)
		defer func() { unlock(); require.NoError(t, l.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err = s.AtHead(ctx, func(Head) error { return nil })
		require.Less(t, time.Since(begun), 4*time.Second)
		require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
