package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkWays: each way of being asked for money beside exact, in one run: the real binary over stdio, the
// reference servers and facilitator (mppx's own for MPP) and anvil, one call after the other. The first of
// each is not counted: it unlocks the wallet, or makes the deposit.
func BenchmarkWays(b *testing.B) {
	const count = 40
	lab := Start(b)
	batch, mpp, shop := startBatch(b, lab), startMPP(b, lab), startExtensions(b, lab)
	for _, way := range []struct {
		name, url string
		before    func(agent string)
		rules     string
	}{
		{name: "exact", url: lab.Seller + "/evm"},
		{name: "mpp", url: mpp.HTTP + "/evm-only"},
		{name: "permit2-approved", url: lab.Seller + "/permit2",
			before: func(agent string) { lab.EVMApprovePermit2(agent, 1_000_000) }},
		{name: "permit2-sponsored", url: lab.Seller + "/permit2/sponsored"},
		{name: "permit2-transaction", url: lab.Seller + "/permit2/erc20"},
		{name: "upto", url: lab.Seller + "/upto",
			before: func(agent string) { lab.EVMApprovePermit2(agent, 1_000_000) }},
		{name: "batch-settlement", url: batch.HTTP + "/paid"},
		{name: "sign-in", url: shop.HTTP + "/evm", rules: signsIn},
	} {
		b.Run(way.name, func(b *testing.B) {
			lab := lab.For(b)
			w, home := funded(b, lab, ConfigOptions{Policy: way.rules, Budget: plenty,
				ApprovalGas: "0.01",
				Loopback:    append(mpp.hosts(), hostPort(batch.HTTP), hostPort(shop.HTTP))})
			if way.before != nil {
				way.before(home.EVM)
			}
			var all []float64
			for b.Loop() {
				all = nil
				for i := range count + 1 {
					began := time.Now()
					url := way.url
					if way.rules == "" {
						url += fmt.Sprint("?n=", i)
					}
					r, err := w.Call(context.Background(), "x402_pay", map[string]any{"url": url,
						"idempotencyKey": fmt.Sprint(way.name, i, b.N)})
					took := time.Since(began)
					require.NoError(b, err)
					require.False(b, r.IsError, "%s", r.Structured)
					if i > 0 {
						all = append(all, float64(took.Microseconds())/1000)
					}
				}
			}
			slices.Sort(all)
			b.ReportMetric(all[len(all)/2], "ms-median")
			b.ReportMetric(all[len(all)*95/100], "ms-p95")
			b.ReportMetric(0, "ns/op")
		})
	}
}
