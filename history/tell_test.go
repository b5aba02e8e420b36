package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One has a turn at a time; whose process died loses it when its time is over, and is late from then on.
func TestATurnIsOnes(t *testing.T) {
	s, c, home := emptyStore(t)
	other, err := Open(t.Context(), home, Options{Now: c.now})
	require.NoError(t, err)
	defer other.Close()
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
	_, err = s.Due(t.Context(), first, false, time.Time{})
	require.ErrorIs(t, err, ErrNoTurn)

	require.NoError(t, other.LeaveTurn(t.Context(), second))
	third, err := s.TakeTurn(t.Context(), "alerts", "a")
	require.NoError(t, err)
	require.Greater(t, third.Fence, second.Fence)

	c.set(c.now().Add(-24 * time.Hour)) // the clock was ahead
	_, err = other.TakeTurn(t.Context(), "alerts", "b")
	require.NoError(t, err)
}

// What was told is told; what failed waits, three times; what is held back waits without that.
func TestWhatWaitsToBeTold(t *testing.T) {
	s, c, _ := emptyStore(t)
	turn, err := s.TakeTurn(t.Context(), "alerts", "a")
	require.NoError(t, err)
	due := func(all bool) (list []string) {
		t.Helper()
		d, err := s.Due(t.Context(), turn, all, c.now().Add(-time.Minute))
		require.NoError(t, err)
		for _, a := range d.Alerts {
			list = append(list, a.ID)
		}
		return list
	}
	next, waits, err := s.NextAlert(t.Context())
	require.NoError(t, err)
	require.False(t, waits)
	require.Zero(t, next)
	asking(t, s, 1)
	asking(t, s, 2)
	asking(t, s, 3)
	list := alertsOf(t, s, AlertApproval)
	one, two, three := list[0].ID, list[1].ID, list[2].ID
	require.Equal(t, []string{one, two, three}, due(false))
	next, waits, err = s.NextAlert(t.Context())
	require.NoError(t, err)
	require.True(t, waits)
	require.Zero(t, next)

	require.NoError(t, s.MarkTold(t.Context(), turn, "n", one))
	later := c.now().Add(time.Minute).Truncate(time.Microsecond)
	require.NoError(t, s.HoldBack(t.Context(), turn, later, two))
	require.NoError(t, s.MarkFailed(t.Context(), turn, later, three))
	require.Empty(t, due(false))
	require.Equal(t, []string{two}, due(true), "what failed is not tried sooner for it")
	next, waits, err = s.NextAlert(t.Context())
	require.NoError(t, err)
	require.True(t, waits)
	require.Equal(t, later, next)
	d, err := s.Due(t.Context(), turn, false, c.now().Add(-time.Minute))
	require.NoError(t, err)
	require.Equal(t, 1, d.Recent)
	d, err = s.Due(t.Context(), turn, false, c.now())
	require.NoError(t, err)
	require.Zero(t, d.Recent)

	c.set(later)
	require.Equal(t, []string{two, three}, due(false))
	require.NoError(t, s.MarkTold(t.Context(), turn, "n", two))
	require.NoError(t, s.MarkFailed(t.Context(), turn, c.now(), three))
	require.Equal(t, []string{three}, due(false))
	require.NoError(t, s.MarkFailed(t.Context(), turn, c.now(), three))
	require.Empty(t, due(true), "it is given up")
	list = alertsOf(t, s, AlertApproval)
	require.Equal(t, []AlertState{AlertTold, AlertTold, AlertFailed},
		[]AlertState{list[0].State, list[1].State, list[2].State})
	require.Equal(t, []int{0, 0, MaxTries}, []int{list[0].Attempts, list[1].Attempts, list[2].Attempts})
	require.True(t, list[2].Told.IsZero())

	c.set(c.now().Add(TurnTime + time.Hour)) // who comes late marks nothing
	asking(t, s, 4)
	_, err = s.TakeTurn(t.Context(), "alerts", "b")
	require.NoError(t, err)
	id := alertsOf(t, s, AlertApproval)[3].ID
	require.ErrorIs(t, s.MarkTold(t.Context(), turn, "n", id), ErrNoTurn)
	require.ErrorIs(t, s.MarkFailed(t.Context(), turn, c.now(), id), ErrNoTurn)
	require.ErrorIs(t, s.HoldBack(t.Context(), turn, c.now(), id), ErrNoTurn)
	require.Equal(t, AlertWaiting, alertsOf(t, s, AlertApproval)[3].State)
}

// What was put off by a clock that was ahead waits no longer for that.
func TestAnAlertPutOffByAClockAhead(t *testing.T) {
	s, c, _ := emptyStore(t)
	asking(t, s, 1)
	turn, err := s.TakeTurn(t.Context(), "alerts", "a")
	require.NoError(t, err)
	id := alertsOf(t, s, AlertApproval)[0].ID
	require.NoError(t, s.HoldBack(t.Context(), turn, c.now().Add(24*time.Hour), id))
	next, waits, err := s.NextAlert(t.Context())
	require.NoError(t, err)
	require.True(t, waits)
	require.Zero(t, next)
	d, err := s.Due(t.Context(), turn, false, c.now())
	require.NoError(t, err)
	require.Len(t, d.Alerts, 1)
}

// Nobody is told of what was settled meanwhile, nor of what nobody could be told of for a week.
func TestWhatIsOverIsNotTold(t *testing.T) {
	s, c, _ := emptyStore(t)
	denied, approved := asking(t, s, 1), asking(t, s, 2)
	asking(t, s, 3)
	_, err := s.Deny(t.Context(), denied.ID, byOwner)
	require.NoError(t, err)
	_, err = s.Approve(t.Context(), approved.ID, byOwner, nil)
	require.NoError(t, err)
	require.NoError(t, s.Freeze(t.Context(), Freeze{Network: "n", Account: "a", By: "agent", Why: "lifted"}))
	_, err = s.Unfreeze(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.Freeze(t.Context(), Freeze{Network: "n", Account: "a", By: "agent", Why: "stands"}))
	open := pay(t, s, testHold(1), Unknown)
	settled := pay(t, s, testHold(2), Unknown)
	for _, p := range []Payment{open, settled} {
		require.NoError(t, s.AlertOverdue(t.Context(), p))
	}
	_, err = finish(s, settled.ID, Outcome{State: Settled, Proof: Chain, Transaction: "0xtx"})
	require.NoError(t, err)
	due := func() (list []string) {
		t.Helper()
		turn, err := s.TakeTurn(t.Context(), "alerts", "a")
		require.NoError(t, err)
		d, err := s.Due(t.Context(), turn, false, c.now())
		require.NoError(t, err)
		for _, a := range d.Alerts {
			list = append(list, a.Subject+a.Detail.Why)
		}
		require.NoError(t, s.LeaveTurn(t.Context(), turn))
		return list
	}
	require.Equal(t, []string{alertsOf(t, s, AlertApproval)[2].Subject, "n/astands", open.ID}, due())
	c.set(c.now().Add(waitFor))
	require.Equal(t, []string{"n/astands", open.ID}, due(), "the question is over by its time")
	c.set(c.now().Add(tellWithin))
	require.Empty(t, due())
	for _, a := range alertsOf(t, s, AlertFreeze) {
		require.Equal(t, AlertOver, a.State)
	}
}
