package history

import (
	"flag"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/pgtest"
)

var movePayments = flag.Int("move.payments", 1_000, "how many payments BenchmarkMove moves")

// BenchmarkMove is a ledger that moves into a fleet's and back, how long each takes, and how much memory of
// Go's at most.
func BenchmarkMove(b *testing.B) {
	payments, dir := *size, *kept
	defer func() { *size, *kept = payments, dir }()
	*size, *kept = *movePayments, "" // one that moved is of no more use
	for b.Loop() {
		s := million(b)
		require.NoError(b, s.Close())
		f := Fleet{URL: pgtest.Start(b, "shared_buffers = 256MB").Database(b), Writer: "owner"}
		_, err := CreateFleet(b.Context(), f)
		require.NoError(b, err)
		fleet, err := OpenFleet(f, Options{})
		require.NoError(b, err)
		defer fleet.Close()
		applyRules(b, fleet, 1, budget.Rules{Day: 1 << 40, Month: 1 << 40, Rate: 1 << 30, PerCall: 1 << 40})
		f.Writer = "home_moved"
		fleet, err = OpenFleet(f, Options{})
		require.NoError(b, err)
		defer fleet.Close()
		home, err := OpenMoving(b.Context(), s.home, Options{})
		require.NoError(b, err)
		defer home.Close()
		m := &Mover{Home: home, Fleet: fleet, Keys: testKeyholder(), Seals: byTests}
		timed(b, "to-fleet", func() error { _, err := m.ToFleet(b.Context()); return err })
		dir := b.TempDir()
		timed(b, "to-home", func() error { _, err := m.ToHome(b.Context(), dir, arrives(dir)); return err })
	}
}

// timed reports how long f takes, and the most memory.
func timed(b *testing.B, name string, f func() error) {
	b.Helper()
	runtime.GC()
	var most atomic.Uint64
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), m.HeapInuse))
			}
		}
	}()
	begin := time.Now()
	err := f()
	took := time.Since(begin)
	close(over)
	<-ended
	require.NoError(b, err)
	b.ReportMetric(took.Seconds(), name+"-s")
	b.ReportMetric(float64(most.Load())/(1<<20), name+"-MB")
}
