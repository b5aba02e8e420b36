package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402test"
)

// BenchmarkPayers: the reference payer and this wallet, one after the other in one run, pay the
// same seller, which settles at once on a play chain. The wallet is the real binary over stdio: its
// budgets, three durable records and the seal are in its figure; @x402/fetch keeps nothing. Each
// pays from an account of its own, 300 times, one call after the other; the wallet also a seller that asks
// in MPP. Of each its CPU, too; the wallet's is with what it does later, but for the last two seconds.
//
// The floor is a Go program that decides nothing and keeps nothing, and forces 4 KB to the disk twice.
func BenchmarkPayers(b *testing.B) {
	const count, key, account = 300, "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
		"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	world := must.Get(sandbox.Start(sandbox.Options{}))(b)
	b.Cleanup(func() { world.Close() })
	world.Fund(account, 1000*sandbox.USDC)
	report := func(b *testing.B, all []float64, cpu float64) {
		require.Len(b, all, count)
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], "ms-median")
		b.ReportMetric(all[len(all)*95/100], "ms-p95")
		if cpu > 0 {
			b.ReportMetric(cpu/count, "cpu-ms/call")
		}
		b.ReportMetric(0, "ns/op")
	}
	b.Run("x402-fetch", func(b *testing.B) {
		for b.Loop() {
			r := testworld.PayByReference(b, "lab", world.SellerURL+"/weather", count, key)
			report(b, r.Took, r.CPU)
		}
	})
	b.Run("floor", func(b *testing.B) {
		world := x402test.New(b)
		client := world.Client(world.NewAccount(b, world.EVM, "1000"))
		path := filepath.Join(b.TempDir(), "kept")
		file := must.Get(os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_DSYNC, 0o600))(b)
		b.Cleanup(func() { _ = file.Close() })
		for b.Loop() {
			var all []float64
			for i := range count {
				started := time.Now()
				answer := must.Get(client.Get(fmt.Sprint(world.SellerURL, "/weather?", i)))(b)
				_, err := io.Copy(io.Discard, answer.Body)
				require.NoError(b, errors.Join(err, answer.Body.Close()))
				require.Equal(b, http.StatusOK, answer.StatusCode)
				for range 2 {
					must.Get(file.WriteAt(make([]byte, 4096), 0))(b)
				}
				all = append(all, float64(time.Since(started).Microseconds())/1000)
			}
			report(b, all, 0)
		}
	})
	b.Run("x402-wallet", func(b *testing.B) {
		bin := testworld.Build(b)
		home := testworld.NewHome(b,
			strings.Replace(world.Config(sandbox.Rules{Session: "1000", Day: "1000", Month: "1000"}),
				"[budget]", "[budget]\nrate = 100000", 1))
		world.Fund(home.EVM, 1000*sandbox.USDC)
		w := testworld.StartWallet(b, bin, home)
		pay := func(query string) (took float64) {
			started := time.Now()
			result, err := w.Call(context.Background(), "x402_pay", map[string]any{"url": world.SellerURL +
				"/weather?" + query})
			took = float64(time.Since(started).Microseconds()) / 1000
			require.NoError(b, err)
			require.Contains(b, string(result.Structured), `"status":"paid"`)
			return took
		}
		pay("unlock") // by passphrase, which takes a second on purpose
		run := 0
		for b.Loop() {
			run++
			var all []float64
			before := testworld.CPUOf(w.PID())
			for i := range count {
				all = append(all, pay(fmt.Sprint(run, ".", i)))
			}
			report(b, all, testworld.CPUOf(w.PID())-before)
		}
	})
}
