package history

import (
	"context"
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

var everyStep = flag.Bool("moves", false, "a move is killed at every step, and not at the main ones alone")

// errKilled ends a run as kill -9 does, as far as the ledgers are concerned: what was committed stays.
var errKilled = errors.New("killed")

// killedAt runs a move that is killed at the n-th of some steps, and says which one that was; "": it has
// fewer.
func killedAt(m *Mover, n int, of []string, run func(context.Context) error) (name string, err error) {
	m.step = func(step string) error {
		if !*everyStep && !slices.Contains(of, step) {
			return nil
		}
		n--
		if n == 0 {
			name = step
			return errKilled
		}
		return nil
	}
	defer func() { m.step = nil }()
	err = run(context.Background())
	return name, err
}

// holds reports whether a ledger holds money and takes what is signed for it, as a wallet does that finds it
// at this moment; what it held it gives back.
func holds(t *testing.T, open func() (*Store, error)) bool {
	t.Helper()
	s, err := open()
	if err != nil {
		require.True(t, x402.HasCode(err, x402.LedgerUnavailable) || x402.HasCode(err,
			x402.LedgerCorrupt), "%v",
			err)
		return false
	}
	defer s.Close()
	p, err := reserve(s, testHold(1))
	if err != nil {
		require.True(t, x402.HasCode(err, x402.LedgerUnavailable) || x402.HasCode(err,
			x402.LedgerCorrupt), "%v",
			err)
		return false
	}
	require.NoError(t, s.Release(t.Context(), p.ID, "a test's"))
	return true
}

// aMove is a small ledger that moves, with who opens either one.
type aMove struct {
	*Mover
	home, fleet func() (*Store, error)
}

func newMove(t *testing.T) aMove {
	t.Helper()
	s, c, home := newStore(t)
	bought(t, s, testHold(5), Outcome{State: Settled, Proof: Claimed, Content: &Content{Status: 200,
		Body: []byte("page")}})
	bought(t, s, testHold(6), Outcome{State: Unknown})
	require.NoError(t, s.Close())
	fleet := emptyFleet(t, c)
	other := fleet.fleet.Fleet
	other.Writer = "home_other"
	o := Options{Now: c.now}
	return aMove{moving(t, home, c, fleet),
		func() (*Store, error) { return Open(context.Background(), home, o) },
		func() (*Store, error) { return OpenFleet(other, o) }}
}

func (m *aMove) toFleetOnce(ctx context.Context) error {
	_, err := m.toFleet(ctx)
	return err
}

// mainSteps are those behind each thing that is written; what is before one is as it is behind the last.
var (
	mainSteps = []string{"after fleet's mark", "after mark", "after home's checkpoint", "copied audit",
		"after copy",
		"after moved", "after release"}
	mainStepsHome = []string{"after fleet's mark", "written", "sealed", "after file", "after the old " +
		"file's other name",
		"after the new file's name", "after fleet's last mark", "after arrived"}
)

// Killed at whichever step, one of both pays or none; and once the same command has run again, the new one
// alone, which has everything.
func TestAMoveToTheFleetIsKilled(t *testing.T) {
	names := []string{}
	for n := 1; ; n++ {
		m := newMove(t)
		name, err := killedAt(m.Mover, n, mainSteps, m.toFleetOnce)
		if name == "" {
			require.NoError(t, err)
			break
		}
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, err, errKilled)
			atHome, inFleet := holds(t, m.home), holds(t, m.fleet)
			if name == "before fleet's mark" { // nothing was done: both are as they were
				require.True(t, atHome && inFleet)
				return // the fleet's ledger is used by now
			} else {
				require.Equal(t, name == "after fleet's mark" || name == "before mark", atHome)
				require.Equal(t, name == "after release", inFleet)
			}
			_, err := m.ToFleet(t.Context())
			require.NoError(t, err)
			require.False(t, holds(t, m.home))
			require.True(t, holds(t, m.fleet))
			_, err = m.Home.VerifySealed(t.Context(), m.Keys)
			require.NoError(t, err)
			_, err = m.Fleet.Verify(t.Context(), Head{})
			require.NoError(t, err)
			facts, err := m.Fleet.Facts(t.Context(), Question{})
			require.NoError(t, err)
			require.EqualValues(t, 11, facts.Used.Day.Total())
		})
	}
	require.Len(t, names, map[bool]int{true: 16 + len(tablesToFleet("")),
		false: len(mainSteps)}[*everyStep], names)
}

// Taken back at whichever step before the old one has said that it moved, the old one pays, and can move
// again; behind that it cannot be taken back.
func TestAMoveToTheFleetIsTakenBack(t *testing.T) {
	isLate := false
	for n := 1; ; n++ {
		m := newMove(t)
		name, err := killedAt(m.Mover, n, []string{"after copy", "after moved"}, m.toFleetOnce)
		if name == "" {
			require.NoError(t, err)
			break
		}
		isLate = isLate || name == "after moved"
		t.Run(name, func(t *testing.T) {
			_, err := m.Abandon(t.Context())
			if isLate {
				require.ErrorIs(t, err, errHasMoved)
				require.False(t, holds(t, m.home))
				return
			}
			require.NoError(t, err)
			require.True(t, holds(t, m.home))
			s, err := m.home()
			require.NoError(t, err)
			bought(t, s, testHold(7), Outcome{State: Settled, Proof: Claimed})
			require.NoError(t, s.Close())
			_, err = m.ToFleet(t.Context())
			require.NoError(t, err)
			require.False(t, holds(t, m.home))
			require.True(t, holds(t, m.fleet))
			facts, err := m.Fleet.Facts(t.Context(), Question{})
			require.NoError(t, err)
			require.EqualValues(t, 18, facts.Used.Day.Total())
		})
	}
}

// arrives is an owner who seals a ledger that comes.
func arrives(dir string) Arrival {
	return Arrival{
		Adopt: func(context.Context, *Store) (Keyholder, Seals, error) {
			return testKeyholder(), byTests,
				nil
		},
		Seal: func(ctx context.Context, s *Store) error {
			return s.SealRules(ctx, SealedRules{Version: 1, Config: []byte("rules"),
				Seal: []byte("seal")}, dir, true,
				testKeyholder())
		},
	}
}

// dies is what becomes of a fleet's processes before it moves.
func dies(t *testing.T, s *Store) {
	t.Helper()
	forge(t, s, `DELETE FROM instances`)
}

func TestALedgerMovesHome(t *testing.T) {
	a, c := newFleetStore(t)
	applyRules(t, a, 2, movedRules)
	lived(t, a, c)
	f := a.fleet.Fleet
	f.Writer, f.Agent = "home_b", "bob"
	b := openFleetWith(t, f, Options{Now: c.now})
	for i := range 5 { // one home takes on what the other one left
		h := testHold(uint64(20 + i))
		p := pay(t, []*Store{a, b}[i%2], h, Submitted)
		c.set(c.at.Add(time.Second)) // the order of events of several chains is that of their times
		_, err := []*Store{b, a}[i%2].Finish(t.Context(), p.ID, Outcome{State: Settled, Proof: Claimed})
		require.NoError(t, err)
	}
	held := pay(t, b, testHold(40), Reserved)
	require.NoError(t, a.Tidy(t.Context())) // adds up what content is stored
	dies(t, a)
	c.set(c.at.Add(time.Hour))
	f.Writer = "owner"
	m := &Mover{Fleet: openFleetWith(t, f, Options{Now: c.now})}
	dir := t.TempDir()
	done, err := m.ToHome(t.Context(), dir, arrives(dir))
	require.NoError(t, err)
	home, err := Open(t.Context(), dir, Options{Now: c.now})
	require.NoError(t, err)
	defer home.Close()
	_, err = home.VerifySealed(t.Context(), testKeyholder())
	require.NoError(t, err)
	p, err := home.Payment(t.Context(), held.ID)
	require.NoError(t, err)
	require.Equal(t, Failed, p.State)
	was, is := answers(t, a), answers(t, home)
	sameAnswers(t, was, is)
	require.EqualValues(t, len(is["each"].([]Payment)), done.Payments)
	bought(t, home, testHold(1), Outcome{State: Settled, Proof: Claimed})
	_, err = home.VerifySealed(t.Context(), testKeyholder())
	require.NoError(t, err)
	_, err = reserve(b, testHold(1))
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
}

// aMoveHome is a small fleet's ledger that moves.
func newMoveHome(t *testing.T) (m aMove, dir string) {
	t.Helper()
	s, c := newFleetStore(t)
	bought(t, s, testHold(5), Outcome{State: Settled, Proof: Claimed, Content: &Content{Status: 200,
		Body: []byte("page")}})
	bought(t, s, testHold(6), Outcome{State: Unknown})
	dies(t, s)
	f, o := s.fleet.Fleet, Options{Now: c.now}
	f.Writer = "owner"
	dir = t.TempDir()
	return aMove{&Mover{Fleet: openFleetWith(t, f, o)},
		func() (*Store, error) { return Open(context.Background(), dir, o) },
		func() (*Store, error) { return OpenFleet(s.fleet.Fleet, o) }}, dir
}

// Killed at whichever step of the way home, one of both pays or none; and once the same command has run
// again, the new one alone.
func TestAMoveHomeIsKilled(t *testing.T) {
	names := []string{}
	for n := 1; ; n++ {
		m, dir := newMoveHome(t)
		run := func(ctx context.Context) error {
			_, err := m.ToHome(ctx, dir, arrives(dir))
			return err
		}
		name, err := killedAt(m.Mover, n, mainStepsHome, run)
		if name == "" {
			require.NoError(t, err)
			break
		}
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, err, errKilled)
			require.Equal(t, name == "before fleet's mark", holds(t, m.fleet))
			require.Equal(t, name == "after arrived", holds(t, m.home))
			dies(t, m.Fleet)
			require.NoError(t, run(t.Context()))
			require.False(t, holds(t, m.fleet))
			require.True(t, holds(t, m.home))
			s, err := m.home()
			require.NoError(t, err)
			defer s.Close()
			_, err = s.VerifySealed(t.Context(), testKeyholder())
			require.NoError(t, err)
			facts, err := s.Facts(t.Context(), Question{})
			require.NoError(t, err)
			require.EqualValues(t, 11, facts.Used.Day.Total())
		})
	}
	require.Len(t, names, map[bool]int{true: 16, false: len(mainStepsHome)}[*everyStep], names)
}

// Taken back before the fleet's ledger has said that it moved, it pays again, and can move again.
func TestAMoveHomeIsTakenBack(t *testing.T) {
	isLate := false
	for n := 1; ; n++ {
		m, dir := newMoveHome(t)
		run := func(ctx context.Context) error {
			_, err := m.ToHome(ctx, dir, arrives(dir))
			return err
		}
		name, err := killedAt(m.Mover, n, []string{"after the new file's name", "after fleet's last " +
			"mark"}, run)
		if name == "" {
			require.NoError(t, err)
			break
		}
		isLate = isLate || name == "after fleet's last mark"
		t.Run(name, func(t *testing.T) {
			err := m.StayInFleet(t.Context(), dir)
			if isLate {
				require.ErrorIs(t, err, errHasMoved)
				require.False(t, holds(t, m.fleet))
				return
			}
			require.NoError(t, err)
			require.False(t, holds(t, m.home))
			require.True(t, holds(t, m.fleet))
			dies(t, m.Fleet)
			require.NoError(t, run(t.Context()))
			require.False(t, holds(t, m.fleet))
			require.True(t, holds(t, m.home))
		})
	}
}
