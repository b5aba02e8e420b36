package history

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"x402-wallet/budget"
)

// BenchmarkSmall is Submit in a ledger of nothing, to compare BenchmarkMillion's with.
func BenchmarkSmall(b *testing.B) {
	home := b.TempDir()
	if err := Create(b.Context(), home, Options{}); err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), home, Options{Contents: Keeper})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.Run("Submit", func(b *testing.B) { benchmarkSubmit(b, s) })
}

// benchmarkSubmit measures a Submit as a whole (ms-p50), and its statements without the commit (sealed-ms).
func benchmarkSubmit(b *testing.B, s *Store) {
	k := testKeyholder()
	k.Query = func(p Payment) budget.Query {
		return budget.Query{HostEntries: []string{"host7.example"}, Host: p.Host,
			Payee: budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()}}
	}
	rules, err := s.Rules(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if rules.Version == 0 {
		err := s.SealRules(b.Context(), SealedRules{Version: 1, Config: []byte("c"), Seal: []byte("s")}, "",
			true, k)
		if err != nil {
			b.Fatal(err)
		}
	}
	var all, sealed []time.Duration
	for b.Loop() {
		b.StopTimer()
		h := testHold(1)
		h.Payment.Host, h.Payment.URL = "host7.example", fmt.Sprint("https://host7.example/new/",
			NewID(time.Now()))
		h.Funds.ReadAt = time.Now()
		p, err := reserve(s, h)
		if err != nil {
			b.Fatal(err)
		}
		signed := Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID}
		b.StartTimer()
		begin := time.Now()
		err = s.tx(b.Context(), func(t *tx) error {
			begin := time.Now()
			err := t.submit(p, s.Self(), signed, k)
			sealed = append(sealed, time.Since(begin))
			return err
		})
		all = append(all, time.Since(begin))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := s.Finish(b.Context(), p.ID, Outcome{State: Settled, Proof: Claimed}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	for name, list := range map[string][]time.Duration{"ms-p50": all, "sealed-ms": sealed} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, name)
	}
}

// BenchmarkMillion: what must not become slow with the years, in a ledger of a million payments of
// one month and one session. Goal: Reserve ≤ 3 ms.
func BenchmarkMillion(b *testing.B) {
	s := million(b)
	rules := budget.Rules{PerCall: 1 << 40, Day: 1 << 50, Month: 1 << 50, ApproveAbove: 1 << 40,
		Rate: 1 << 40, PriceJump: 3}
	b.Run("Reserve", func(b *testing.B) {
		var all []time.Duration
		for b.Loop() {
			begin := time.Now()
			h := testHold(1)
			h.Payment.Host = "host7.example"
			h.Funds.ReadAt = time.Now()
			h.Payment.PayTo = fmt.Sprint("0xnew", b.N)
			p, err := reserveBy(s, rules, h)
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(begin))
			b.StopTimer()
			if err := s.Release(context.Background(), p.ID, "bench"); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-p50")
	})
	b.Run("Submit", func(b *testing.B) { benchmarkSubmit(b, s) })
}

// BenchmarkPayments is what the ledger takes of a payment: decided on, held, signed, settled with its content
// and delivered, by 100 callers at once. Goal: 500 payments/s.
func BenchmarkPayments(b *testing.B) {
	home := b.TempDir()
	if err := Create(b.Context(), home, Options{}); err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), home, Options{Contents: Keeper})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	rules := budget.Rules{PerCall: 1 << 40, Day: 1 << 50, Month: 1 << 50, ApproveAbove: 1 << 40,
		Rate: 1 << 40}
	ctx, k := context.Background(), testKeyholder()
	pay := func() error {
		h := testHold(1)
		h.Funds.ReadAt = time.Now()
		p, err := reserveBy(s, rules, h)
		if err == nil {
			err = s.Submit(ctx, p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID}, k)
		}
		if err == nil {
			_, err = s.Finish(ctx, p.ID, Outcome{State: Settled, Proof: Claimed,
				Content: &Content{Status: 200, Body: []byte("bought")}})
		}
		if err == nil {
			err = s.Deliver(ctx, p.ID)
		}
		return err
	}
	b.SetParallelism(100 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := pay(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "payments/s")
}
