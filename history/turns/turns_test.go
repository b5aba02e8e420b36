package turns

import (
	"testing"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// One has a turn at a time; whose process died loses it when its time is over, and is late from then on.
func TestATurnIsOnes(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		other := s
		first := must.Get(Take(t.Context(), s, "alerts", "a"))(t)
		for _, holder := range []string{"a", "b"} {
			require.ErrorIs(t, must.Err(Take(t.Context(), other, "alerts", holder)), ErrNone, holder)
		}
		must.Get(Take(t.Context(), other, "another", "b"))(t)

		c.Set(c.Now().Add(Time - time.Second))
		require.NoError(t, Renew(t.Context(), s, first))
		c.Set(c.Now().Add(Time - time.Second))
		require.ErrorIs(t, must.Err(Take(t.Context(), other, "alerts", "b")), ErrNone, "it was renewed")
		c.Set(c.Now().Add(2 * time.Second))
		second := must.Get(Take(t.Context(), other, "alerts", "b"))(t)
		require.Greater(t, second.Fence, first.Fence)
		require.ErrorIs(t, Renew(t.Context(), s, first), ErrNone)
		require.ErrorIs(t, Leave(t.Context(), s, first), ErrNone)
		require.ErrorIs(t, s.View(t.Context(), first.Check), ErrNone)

		require.NoError(t, Leave(t.Context(), other, second))
		require.Greater(t, must.Get(Take(t.Context(), s, "alerts", "a"))(t).Fence, second.Fence)

		c.Set(c.Now().Add(-24 * time.Hour)) // the clock was ahead
		must.Get(Take(t.Context(), other, "alerts", "b"))(t)
	})
}
