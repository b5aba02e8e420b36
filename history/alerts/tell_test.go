package alerts

import (
	"testing"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/turns"
	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// What was told is told; what failed waits, three times; what is held back waits without that.
func TestWhatWaitsToBeTold(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		turn := must.Get(turns.Take(t.Context(), s, "alerts", "a"))(t)
		due := func(all bool) (list []string) {
			t.Helper()
			due, _, err := Due(t.Context(), s, turn, all, c.Now().Add(-time.Minute))
			require.NoError(t, err)
			for _, a := range due {
				list = append(list, a.ID)
			}
			return list
		}
		next, waits, err := Next(t.Context(), s)
		require.NoError(t, err)
		require.False(t, waits)
		require.Zero(t, next)
		askedAbout(t, s, 1)
		askedAbout(t, s, 2)
		askedAbout(t, s, 3)
		list := alertsOf(t, s, Approval)
		one, two, three := list[0].ID, list[1].ID, list[2].ID
		require.Equal(t, []string{one, two, three}, due(false))
		next, waits, err = Next(t.Context(), s)
		require.NoError(t, err)
		require.True(t, waits)
		require.Zero(t, next)

		require.NoError(t, MarkTold(t.Context(), s, turn, "n", one))
		later := c.Now().Add(time.Minute).Truncate(time.Microsecond)
		require.NoError(t, HoldBack(t.Context(), s, turn, later, two))
		require.NoError(t, MarkFailed(t.Context(), s, turn, later, three))
		require.Empty(t, due(false))
		require.Equal(t, []string{two}, due(true), "what failed is not tried sooner for it")
		next, waits, err = Next(t.Context(), s)
		require.NoError(t, err)
		require.True(t, waits)
		require.Equal(t, later, next)
		_, recent, err := Due(t.Context(), s, turn, false, c.Now().Add(-time.Minute))
		require.NoError(t, err)
		require.Equal(t, 1, recent)
		_, recent, err = Due(t.Context(), s, turn, false, c.Now())
		require.NoError(t, err)
		require.Zero(t, recent)

		c.Set(later)
		require.Equal(t, []string{two, three}, due(false))
		require.NoError(t, MarkTold(t.Context(), s, turn, "n", two))
		require.NoError(t, MarkFailed(t.Context(), s, turn, c.Now(), three))
		require.Equal(t, []string{three}, due(false))
		require.NoError(t, MarkFailed(t.Context(), s, turn, c.Now(), three))
		require.Empty(t, due(true), "it is given up")
		list = alertsOf(t, s, Approval)
		require.Equal(t, []State{Told, Told, Failed},
			[]State{list[0].State, list[1].State, list[2].State})
		require.Equal(t, []int{0, 0, MaxTries}, []int{list[0].Attempts, list[1].Attempts, list[2].Attempts})
		require.True(t, list[2].Told.IsZero())

		c.Set(c.Now().Add(turns.Time + time.Hour)) // who comes late marks nothing
		askedAbout(t, s, 4)
		must.Get(turns.Take(t.Context(), s, "alerts", "b"))(t)
		id := alertsOf(t, s, Approval)[3].ID
		require.ErrorIs(t, MarkTold(t.Context(), s, turn, "n", id), turns.ErrNone)
		require.ErrorIs(t, MarkFailed(t.Context(), s, turn, c.Now(), id), turns.ErrNone)
		require.ErrorIs(t, HoldBack(t.Context(), s, turn, c.Now(), id), turns.ErrNone)
		require.Equal(t, Waiting, alertsOf(t, s, Approval)[3].State)
	})
}

// What was put off by a clock that was ahead waits no longer for that.
func TestAnAlertPutOffByAClockAhead(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		askedAbout(t, s, 1)
		turn := must.Get(turns.Take(t.Context(), s, "alerts", "a"))(t)
		id := alertsOf(t, s, Approval)[0].ID
		require.NoError(t, HoldBack(t.Context(), s, turn, c.Now().Add(24*time.Hour), id))
		next, waits, err := Next(t.Context(), s)
		require.NoError(t, err)
		require.True(t, waits)
		require.Zero(t, next)
		list, _, err := Due(t.Context(), s, turn, false, c.Now())
		require.NoError(t, err)
		require.Len(t, list, 1)
	})
}

// Nobody is told of what was settled meanwhile, nor of what nobody could be told of for a week.
func TestWhatIsOverIsNotTold(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		denied, approved := askedAbout(t, s, 1), askedAbout(t, s, 2)
		waits := askedAbout(t, s, 3)
		must.Get(s.Deny(t.Context(), denied.ID, "owner"))(t)
		must.Get(s.Approve(t.Context(), approved.ID, "owner", nil))(t)
		require.NoError(t, s.Freeze(t.Context(),
			history.Freeze{Network: "n", Account: "a", By: "agent", Why: "lifted"}))
		must.Get(s.Unfreeze(t.Context(), nil))(t)
		require.NoError(t, s.Freeze(t.Context(),
			history.Freeze{Network: "n", Account: "a", By: "agent", Why: "stands"}))
		open := historytest.Pay(t, s, historytest.Hold(1), history.Unknown)
		settled := historytest.Pay(t, s, historytest.Hold(2), history.Unknown)
		for _, p := range []history.Payment{open, settled} {
			require.NoError(t, s.AlertOverdue(t.Context(), p))
		}
		must.Get(s.Finish(t.Context(), settled.ID, history.Outcome{State: history.Settled,
			Proof: history.Chain, Transaction: "0xtx"}))(t)
		due := func() (list []string) {
			t.Helper()
			turn := must.Get(turns.Take(t.Context(), s, "alerts", "a"))(t)
			due, _, err := Due(t.Context(), s, turn, false, c.Now())
			require.NoError(t, err)
			for _, a := range due {
				list = append(list, a.Subject+a.Detail.Why)
			}
			require.NoError(t, turns.Leave(t.Context(), s, turn))
			return list
		}
		require.Equal(t, []string{alertsOf(t, s, Approval)[2].Subject, "n/astands", open.ID}, due())
		c.Set(waits.Expires)
		require.Equal(t, []string{"n/astands", open.ID}, due(), "the question is over by its time")
		c.Set(c.Now().Add(tellWithin))
		require.Empty(t, due())
		for _, a := range alertsOf(t, s, Freeze) {
			require.Equal(t, Over, a.State)
		}
	})
}
