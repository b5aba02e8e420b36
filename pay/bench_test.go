package pay

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
)

func benchEngine(b *testing.B) *bench {
	b.Helper()
	home := b.TempDir()
	require.NoError(b, history.Create(b.Context(), home, history.Options{}))
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
