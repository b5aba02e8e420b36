package pay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// stages are what one paid call after another takes, by the part of it.
type stages struct {
	*scriptedSeller
	last time.Time
	took map[string][]time.Duration
}

func (s *stages) ended(part string) {
	now := time.Now()
	s.took[part] = append(s.took[part], now.Sub(s.last))
	s.last = now
}

func (s *stages) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	s.ended("1-look-up-ms")
	defer s.ended("2-ask-ms")
	return s.scriptedSeller.Ask(ctx, r)
}

func (s *stages) Present(ctx context.Context, r seller.Request, with x402.Attachment) (*seller.Answer,
	error) {
	s.ended("4-sign-and-submit-ms")
	defer s.ended("5-present-ms")
	return s.scriptedSeller.Present(ctx, r, with)
}

// BenchmarkStages is BenchmarkPay by its parts, of each the median. Seller, chain and signature take next to
// nothing: what is left is the wallet's own.
func BenchmarkStages(b *testing.B) {
	e := benchEngine(b)
	s := &stages{scriptedSeller: e.seller, took: map[string][]time.Duration{}}
	e.Transport = s
	ctx := OnStage(b.Context(), func(at Stage, _ history.Payment) {
		if at == StageHeld {
			s.ended("3-decide-and-hold-ms")
		}
	})
	for b.Loop() {
		s.last = time.Now()
		r, err := e.Pay(ctx, get(testURL))
		require.NoError(b, err)
		s.ended("6-finish-ms")
		e.Delivered(ctx, r.Status, r.PaymentID)
		s.ended("7-delivered-ms")
	}
	for part, all := range s.took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, part)
	}
}

// BenchmarkHolds: a paid call beside so many others whose outcome is not known yet.
func BenchmarkHolds(b *testing.B) {
	for _, holds := range []int{0, 100, 1000, 5000} {
		b.Run(fmt.Sprint(holds), func(b *testing.B) {
			e := benchEngine(b)
			e.seller.script, e.Rules.MaxFailures = silent, 0
			var all sync.WaitGroup
			const callers = 50
			for caller := range callers {
				all.Go(func() {
					for i := caller; i < holds; i += callers {
						_, err := e.Pay(b.Context(), get(fmt.Sprintf("%s?held=%d", testURL, i)))
						if err == nil {
							b.Error("the seller is silent")
						}
					}
				})
			}
			all.Wait()
			e.seller.script = honest
			open, err := e.store.Unfinished(b.Context(), "", holds+1)
			require.NoError(b, err)
			require.Equal(b, holds, len(open))
			payOneAfterAnother(b, e)
		})
	}
}

func payOneAfterAnother(b *testing.B, e *bench) {
	b.Helper()
	var all []time.Duration
	for b.Loop() {
		begin := time.Now()
		r, err := e.Pay(b.Context(), get(testURL))
		require.NoError(b, err)
		all = append(all, time.Since(begin)) // Delivered comes after the answer
		e.Delivered(b.Context(), r.Status, r.PaymentID)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(all[len(all)*95/100].Microseconds())/1000, "ms-p95")
}

// BenchmarkInstances: a hundred callers at so many instances of the wallet on one home, as processes are.
func BenchmarkInstances(b *testing.B) {
	for _, instances := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(instances), func(b *testing.B) {
			engines := []*bench{benchEngine(b)}
			for len(engines) < instances {
				e := openBench(b, engines[0].home, engines[0].chain, "1", honest)
				e.Rules = engines[0].Rules
				engines = append(engines, e)
			}
			const callers, calls = 100, 20
			for b.Loop() {
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						e := engines[i%instances]
						for j := range calls {
							r, err := e.Pay(b.Context(), get(fmt.Sprintf("%s?%d.%d", testURL, i, j)))
							if err != nil {
								b.Error(err)
								return
							}
							e.Delivered(b.Context(), r.Status, r.PaymentID)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(b.N*callers*calls)/b.Elapsed().Seconds(), "payments/s")
		})
	}
}
