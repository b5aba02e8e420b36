package history

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/pgtest"
)

// What a process held that says no more that it lives is taken up by another one. If it was only stopped, it
// finds that out when it goes on, and what it signed is dropped.
func TestADeadProcessLosesItsHold(t *testing.T) {
	_, f := newFleet(t)
	f.Writer = "home_stopped"
	stopped := openFleet(t, f)
	f.Writer = "home_other"
	other := openFleet(t, f)
	p, err := reserveBy(stopped, fleetRules, testHold(7))
	require.NoError(t, err)
	require.True(t, other.Alive(p.LeaseOwner))
	const longAgo = `UPDATE x402.instances SET until = 0 WHERE id = '%s'`
	pgtest.SQL(t, f.URL, fmt.Sprintf(longAgo, p.LeaseOwner))
	require.False(t, other.Alive(p.LeaseOwner))

	mine, err := other.AcquireLease(t.Context(), p.ID, p.LeaseOwner)
	require.NoError(t, err)
	require.True(t, mine)
	require.ErrorIs(t, stopped.Submit(t.Context(), p, signedOf(p), testKeyholder()), ErrNotLeaseOwner)
	require.ErrorIs(t, stopped.Release(t.Context(), p.ID, "late"), ErrNotLeaseOwner)
	require.NoError(t, other.Release(t.Context(), p.ID, "its process ended"))
	require.ErrorIs(t, stopped.Submit(t.Context(), p, signedOf(p), testKeyholder()), ErrNotLeaseOwner)
	require.Equal(t, "0", pgtest.SQL(t, f.URL, `SELECT max(used) FROM x402.counters`))
	requireSound(t, f.URL)
}

// A step that is said again is known by it, also where others took steps in between.
func TestAStepThatIsSaidAgain(t *testing.T) {
	_, f := newFleet(t)
	wire := pgtest.NewProxy(t, f.URL)
	late := f
	late.URL, late.Writer = wire.URL(), "home_late"
	s := openFleet(t, late)
	f.Writer = "home_other"
	other := openFleet(t, f)
	p, err := reserveBy(s, fleetRules, testHold(1))
	require.NoError(t, err)
	require.NoError(t, s.Submit(t.Context(), p, signedOf(p), testKeyholder()))
	met := wire.At(`FROM finish(`, pgtest.CutAfter)
	wire.Next(func(msg byte) pgtest.Action { // before it is said again, another process took it up
		if msg != pgtest.Startup {
			return pgtest.Pass
		}
		select {
		case <-met:
			got, err := other.AcquireLease(t.Context(), p.ID, "")
			if err != nil || !got {
				t.Errorf("lease: %v, %v", got, err)
			}
		default:
		}
		return pgtest.Pass
	})
	_, err = s.Finish(t.Context(), p.ID, Outcome{State: Unknown, ReleaseLease: true})
	require.NoError(t, err)
	wire.Next(nil)
	is, err := other.Payment(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, other.Self(), is.LeaseOwner)
	requireSound(t, f.URL)
}
