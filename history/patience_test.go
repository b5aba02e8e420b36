package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// A call's deadline holds, whoever holds the checkpoint.
func TestADeadlineHoldsWhileTheCheckpointIsHeld(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		l := sqldb.NewFileLock(s.home, "mark")
		unlock := must.Get(l.Lock(t.Context()))(t)
		defer func() { unlock(); require.NoError(t, l.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := s.AtHead(ctx, nil, func(Standing) error { return nil })
		require.Less(t, time.Since(begun), 4*time.Second)
		requireCode(t, err, x402.LedgerUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
