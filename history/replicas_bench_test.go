package history

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/pgtest"
)

// BenchmarkReplicas: payments from reserve to settled, by replicas with 32 callers each and one ledger in
// PostgreSQL. The server is on the same machine, and each commit waits 2 ms, as for a disk in a cloud.
func BenchmarkReplicas(b *testing.B) {
	for _, replicas := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("replicas=", replicas), func(b *testing.B) { benchmarkReplicas(b, replicas) })
	}
}

func benchmarkReplicas(b *testing.B, replicas int) {
	server := pgtest.Start(b, pgtest.SlowFlush...)
	p := postgres.Server{URL: server.Database(b)}
	if _, err := MakePostgres(b.Context(), p); err != nil {
		b.Fatal(err)
	}
	k := testKeyholder()
	stores := make([]*Store, replicas)
	for i := range stores {
		s, err := OpenPostgres(b.Context(), b.TempDir(), p, Options{Contents: Keeper})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	rules := SealedRules{Version: 1, Config: []byte("c"), Seal: []byte("s")}
	if err := stores[0].SealRules(b.Context(), rules, "", true, k); err != nil {
		b.Fatal(err)
	}
	const callers = 32 // of each replica
	var left atomic.Int64
	left.Store(int64(b.N))
	var paying sync.WaitGroup
	b.ResetTimer()
	for i := range replicas * callers {
		paying.Go(func() {
			for left.Add(-1) >= 0 {
				if err := payOnce(b, stores[i%replicas], k); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	paying.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "payments/s")
}

func payOnce(b *testing.B, s *Store, k Keyholder) error {
	p, err := reserve(s, testHold(1))
	for errors.Is(err, ErrMoved) {
		p, err = reserve(s, testHold(1))
	}
	if err == nil {
		signed := Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID}
		err = s.Submit(b.Context(), p, signed, k)
	}
	if err == nil {
		_, err = s.Finish(b.Context(), p.ID, Outcome{State: Settled, Proof: Claimed})
	}
	return err
}
