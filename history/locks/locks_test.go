package locks_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	. "x402-wallet/history/locks"
	"x402-wallet/internal/must"
)

// One call at a time, also of two processes.
func TestLockChannel(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		one, other := New(s), New(historytest.Besides(t, s))
		give := must.Get(one.LockChannel(t.Context(), "a", "b"))(t)
		short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer end()
		require.ErrorIs(t, must.Err(other.LockChannel(short, "a", "b")), context.DeadlineExceeded)
		free, err := other.LockChannel(t.Context(), "a", "c")
		require.NoError(t, err, "another channel has another lock")
		free()
		give()
		give = must.Get(other.LockChannel(t.Context(), "a", "b"))(t)
		give()
		require.NoError(t, one.CloseLocks())
		require.NoError(t, other.CloseLocks())
	})
}
