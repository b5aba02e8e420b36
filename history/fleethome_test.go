package history

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Of a process that is killed the others of its home know at once that it has ended, and then those of other
// homes do; before that, those take it for alive.
func TestWhoeverEndedInThisHomeIsKnownAtOnce(t *testing.T) {
	_, f := newFleet(t)
	at := func(home string) *Store {
		f.Home = home
		return openFleet(t, f)
	}
	home := t.TempDir()
	killed, here, elsewhere, nowhere := at(home), at(home), at(t.TempDir()), at("")
	_, err := reserveBy(killed, fleetRules, testHold(1))
	require.NoError(t, err)
	id := killed.Self()
	for _, s := range []*Store{killed, here, elsewhere, nowhere} {
		require.True(t, s.Alive(id))
	}

	require.NoError(t, killed.fleet.lock.file.Close()) // as the kernel does
	require.True(t, elsewhere.Alive(id))
	require.True(t, nowhere.Alive(id))
	require.False(t, here.Alive(id))
	require.NoFileExists(t, filepath.Join(home, runFolder, id))
	for _, s := range []*Store{here, elsewhere, nowhere} {
		require.False(t, s.Alive(id))
	}
}

// A home in which no lock can be had is one of a container without a disk: it pays all the same.
func TestAHomeWithoutLocks(t *testing.T) {
	_, f := newFleet(t)
	f.Home = filepath.Join(t.TempDir(), "a file")
	require.NoError(t, os.WriteFile(f.Home, nil, 0o600))
	s := openFleet(t, f)
	_, err := reserveBy(s, fleetRules, testHold(1))
	require.NoError(t, err)
	require.True(t, s.Alive(s.Self()))
}

// What was settled since a source was read counts as held of it by the server's clock, also where the
// wallet's is ahead of that.
func TestFundsReadByAnotherClock(t *testing.T) {
	for name, apart := range map[string]int64{"ahead": 60, "behind": -60} {
		t.Run(name, func(t *testing.T) { fundsRead(t, apart) })
	}
}

// fundsRead settles a payment between two readings by a wallet whose clock is some seconds ahead.
func fundsRead(t *testing.T, ahead int64) {
	_, f := newFleet(t)
	now := func() time.Time { return time.Now().Add(time.Duration(ahead) * time.Second) }
	s := openFleetWith(t, f, Options{Now: now})
	read := func(free uint64) x402.Funds {
		return x402.Funds{Source: "0xagent", Free: money.NewAmount(free), ReadAt: now()}
	}
	before := read(10)
	time.Sleep(time.Millisecond) // a time of its own
	p, err := reserveBy(s, fleetRules, testHold(7))
	require.NoError(t, err)
	require.NoError(t, s.Submit(t.Context(), p, signedOf(p), testKeyholder()))
	_, err = s.Finish(t.Context(), p.ID, Outcome{State: Settled, Proof: Claimed, ReleaseLease: true})
	require.NoError(t, err)
	time.Sleep(time.Millisecond)

	h := testHold(4)
	h.Funds = before
	_, err = reserveBy(s, fleetRules, h)
	var short *ShortOfFunds
	require.ErrorAs(t, err, &short)
	require.Equal(t, money.NewAmount(7), short.Held)
	held, err := s.HeldUpTo(t.Context(), p, before.ReadAt)
	require.NoError(t, err)
	require.Equal(t, money.NewAmount(7), held)

	h.Funds = read(4) // what is left
	held, err = s.HeldUpTo(t.Context(), p, h.Funds.ReadAt)
	require.NoError(t, err)
	require.Zero(t, held)
	_, err = reserveBy(s, fleetRules, h)
	require.NoError(t, err)
}

// Of those who make the ledger at once, as after the one before was killed at it, one does, and all have it.
func TestALedgerIsMadeOnce(t *testing.T) {
	f := Fleet{URL: pgtest.Shared(t).Database(t), Writer: "owner"}
	made := make([]error, 4)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() { made[i] = MakeFleet(t.Context(), f) })
	}
	all.Wait()
	for _, err := range made {
		require.NoError(t, err)
	}
	_, err := openFleet(t, f).LedgerID(t.Context())
	require.NoError(t, err)
}

// A process says that it lives as long as any payment of its own is under way, whatever is said twice of
// others.
func TestAProcessLivesWhileAPaymentIsUnderWay(t *testing.T) {
	s, _ := newFleet(t)
	one, err := reserveBy(s, fleetRules, testHold(1))
	require.NoError(t, err)
	other, err := reserveBy(s, fleetRules, testHold(1))
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), one.ID, "not signed"))
	require.NoError(t, s.ReleaseLease(t.Context(), one.ID))
	require.Equal(t, map[string]bool{other.ID: true}, s.fleet.driving)
	require.NoError(t, s.Release(t.Context(), other.ID, "not signed"))
	require.Empty(t, s.fleet.driving)
}
