package network

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

var calls = flag.String("calls", "1,100,1000", "how many calls BenchmarkParallel makes at a time, by commas")

var roundTrips = []int{0, 50, 150}

// BenchmarkNetwork is the first paid call of a process (with the wallet's unlocking in it), the median of ten
// that follow it, and the first one of the next process, at several distances; beside them the reference
// payer with the same seller.
func BenchmarkNetwork(b *testing.B) {
	for _, rtt := range roundTrips {
		w := newWorld(b, time.Duration(rtt)*time.Millisecond)
		var fetch float64 // its repeated call
		b.Run(fmt.Sprintf("%dms/x402-fetch", rtt), func(b *testing.B) {
			for b.Loop() {
				all := w.reference(b)
				fetch = report(b, all, rtt)
			}
		})
		for _, way := range ways {
			b.Run(fmt.Sprintf("%dms/x402-wallet-%s", rtt, way.name), func(b *testing.B) {
				for b.Loop() {
					p := w.newPayer(b, way.delegated)
					var all []float64
					for range repeats + 1 {
						took := must.Get(p.pay(w.SellerURL + way.path))(b)
						all = append(all, float64(took.Microseconds())/1000)
					}
					repeated := report(b, all, rtt)
					p.stop()
					again := must.Get(w.start(b, p.home).pay(w.SellerURL + way.path))(b)
					b.ReportMetric(float64(again.Microseconds())/1000, "again-ms")
					if fetch > 0 {
						b.ReportMetric(repeated/fetch, "x-of-fetch")
					}
				}
			})
		}
	}
}

// reference is what the reference payer's calls take, in milliseconds.
func (w *world) reference(b *testing.B) (all []float64) {
	const key, account = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
		"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	w.Fund(account, 1000*sandbox.USDC)
	return testworld.PayByReference(b, "../lab", w.SellerURL+"/weather", repeats+1, key,
		"NODE_EXTRA_CA_CERTS="+w.authority.file).Took
}

// report says how long the first call and the median of the others took, which it returns.
func report(b *testing.B, all []float64, rtt int) (repeated float64) {
	require.Len(b, all, repeats+1)
	others := slices.Sorted(slices.Values(all[1:]))
	repeated = others[len(others)/2]
	b.ReportMetric(all[0], "first-ms")
	b.ReportMetric(repeated, "repeated-ms")
	if rtt > 0 {
		b.ReportMetric(all[0]/float64(rtt), "first-RTT")
		b.ReportMetric(repeated/float64(rtt), "repeated-RTT")
	}
	b.ReportMetric(0, "ns/op")
	return repeated
}

// BenchmarkParallel makes calls at the same time, to one seller without distance, of one process each.
func BenchmarkParallel(b *testing.B) {
	for size := range strings.SplitSeq(*calls, ",") {
		n := must.Get(strconv.Atoi(size))(b)
		b.Run(size, func(b *testing.B) {
			for b.Loop() {
				w := newWorld(b, 0)
				p := w.newPayer(b, false)
				must.Get(p.pay(w.SellerURL + "/weather"))(b)
				started, computed := time.Now(), p.cpu()
				failures := make(chan error, n)
				var all sync.WaitGroup
				for range n {
					all.Go(func() {
						if _, err := p.pay(w.SellerURL + "/weather"); err != nil {
							failures <- err
						}
					})
				}
				all.Wait()
				close(failures)
				b.ReportMetric(float64(time.Since(started).Milliseconds()), "all-ms")
				b.ReportMetric((p.cpu()-computed)/float64(n), "cpu-ms/call")
				b.ReportMetric(p.memory(), "peak-MiB")
				b.ReportMetric(float64(len(failures)), "failed")
				b.ReportMetric(0, "ns/op")
				if err := <-failures; err != nil {
					b.Log("the first that failed:", err)
				}
			}
		})
	}
}
