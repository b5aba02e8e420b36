package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One has a turn at a time; whose process died loses it when its time is over, and is late from then on.
func TestATurnIsOnes(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		other := besides(t, s)
		first, err := s.TakeTurn(t.Context(), "alerts", "a")
		require.NoError(t, err)
		for _, holder := range []string{"a", "b"} {
			_, err = other.TakeTurn(t.Context(), "alerts", holder)
			require.ErrorIs(t, err, ErrNoTurn, holder)
		}
		_, err = other.TakeTurn(t.Context(), "another", "b")
		require.NoError(t, err)

		c.set(c.now().Add(TurnTime - time.Second))
		require.NoError(t, s.RenewTurn(t.Context(), first))
		c.set(c.now().Add(TurnTime - time.Second))
		_, err = other.TakeTurn(t.Context(), "alerts", "b")
		require.ErrorIs(t, err, ErrNoTurn, "it was renewed")
		c.set(c.now().Add(2 * time.Second))
		second, err := other.TakeTurn(t.Context(), "alerts", "b")
		require.NoError(t, err)
		require.Greater(t, second.Fence, first.Fence)
		require.ErrorIs(t, s.RenewTurn(t.Context(), first), ErrNoTurn)
		require.ErrorIs(t, s.LeaveTurn(t.Context(), first), ErrNoTurn)
		require.ErrorIs(t, s.view(t.Context(), func(t *tx) error { return first.Check(t.Tx) }), ErrNoTurn)

		require.NoError(t, other.LeaveTurn(t.Context(), second))
		third, err := s.TakeTurn(t.Context(), "alerts", "a")
		require.NoError(t, err)
		require.Greater(t, third.Fence, second.Fence)

		c.set(c.now().Add(-24 * time.Hour)) // the clock was ahead
		_, err = other.TakeTurn(t.Context(), "alerts", "b")
		require.NoError(t, err)
	})
}
