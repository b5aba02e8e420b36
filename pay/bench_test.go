package pay

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
)

func benchEngine(b *testing.B) *bench {
	b.Helper()
	home := b.TempDir()
	require.NoError(b, ledgers.Create(b.Context(), home, history.Options{}))
	e := openBench(b, home, newChain(1<<60), "1", honest)
	e.Rules.Day, e.Rules.Month, e.Rules.Rate = 1<<60, 1<<60, 1<<40
	return e
}

// BenchmarkPay: the wallet's own time in one paid call, durable, against a seller and a chain that
// answer at once (goal ≤ 2 ms).
func BenchmarkPay(b *testing.B) {
	e := benchEngine(b)
	payOneAfterAnother(b, e)
}

// BenchmarkPayParallel: the same from a hundred callers, each for something else (goal ≥ 1,000 payments a
// second).
func BenchmarkPayParallel(b *testing.B) {
	e := benchEngine(b)
	b.SetParallelism(100 / runtime.GOMAXPROCS(0))
	var calls atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := e.Pay(context.Background(), get(fmt.Sprintf("%s?%d", testURL, calls.Add(1))))
			if err != nil {
				b.Error(err)
				return
			}
			e.Delivered(context.Background(), r.Status, r.PaymentID)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "payments/s")
}

func payOneAfterAnother(b *testing.B, e *bench) {
	b.Helper()
	var all []time.Duration
	for b.Loop() {
		begin := time.Now()
		r := must.Get(e.Pay(b.Context(), get(testURL)))(b)
		all = append(all, time.Since(begin)) // Delivered comes after the answer
		e.Delivered(b.Context(), r.Status, r.PaymentID)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(all[len(all)*95/100].Microseconds())/1000, "ms-p95")
}
