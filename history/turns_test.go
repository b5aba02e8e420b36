package history

import (
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// One has a turn at a time; whose process died loses it when its time is over, and is late from then on.
func TestATurnIsOnes(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		other := besides(t, s)
		first := must.Get(s.TakeTurn(t.Context(), "alerts", "a"))(t)
		for _, holder := range []string{"a", "b"} {
			require.ErrorIs(t, must.Err(other.TakeTurn(t.Context(), "alerts", holder)), ErrNoTurn, holder)
		}
		must.Get(other.TakeTurn(t.Context(), "another", "b"))(t)

		c.set(c.now().Add(TurnTime - time.Second))
		require.NoError(t, s.RenewTurn(t.Context(), first))
		c.set(c.now().Add(TurnTime - time.Second))
		require.ErrorIs(t, must.Err(other.TakeTurn(t.Context(), "alerts", "b")), ErrNoTurn, "it was renewed")
		c.set(c.now().Add(2 * time.Second))
		second := must.Get(other.TakeTurn(t.Context(), "alerts", "b"))(t)
		require.Greater(t, second.Fence, first.Fence)
		require.ErrorIs(t, s.RenewTurn(t.Context(), first), ErrNoTurn)
		require.ErrorIs(t, s.LeaveTurn(t.Context(), first), ErrNoTurn)
		require.ErrorIs(t, s.view(t.Context(), func(t *tx) error { return first.Check(t.Tx) }), ErrNoTurn)

		require.NoError(t, other.LeaveTurn(t.Context(), second))
		require.Greater(t, must.Get(s.TakeTurn(t.Context(), "alerts", "a"))(t).Fence, second.Fence)

		c.set(c.now().Add(-24 * time.Hour)) // the clock was ahead
		must.Get(other.TakeTurn(t.Context(), "alerts", "b"))(t)
	})
}
