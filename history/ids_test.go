package history

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A payment's id begins with its time in a fixed width, so that ids sort as times do; the rest
// tells payments of one millisecond apart.
func TestPaymentIDsSortByTime(t *testing.T) {
	at := time.Date(2026, 11, 22, 21, 0, 0, 0, time.UTC)
	before, same, after := NewID(at), NewID(at), NewID(at.Add(time.Millisecond))
	for _, id := range []string{before, same, after, NewID(time.UnixMilli(1)),
		NewID(at.AddDate(2000, 0, 0))} {
		t.Run(id, func(t *testing.T) {
			require.Regexp(t, `^pay_[0-9a-f]{32}$`, id)
		})
	}
	require.Equal(t, "pay_01a2050f0480", before[:16])
	require.Equal(t, before[:16], same[:16])
	require.NotEqual(t, before, same)
	require.Less(t, same, after)
	require.Less(t, NewID(time.UnixMilli(1)), before)
	require.Less(t, after, NewID(at.AddDate(2000, 0, 0)))

	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		p := pay(t, s, testHold(1), Reserved)
		require.True(t, strings.HasPrefix(p.ID, NewID(p.Created)[:16]), "it is the time of the payment")
	})
}
