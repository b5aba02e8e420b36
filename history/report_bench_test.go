package history_test

import (
	"fmt"
	"testing"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/content"
	"x402-wallet/history/report"
)

// BenchmarkMillionReport is what people and agents read of a ledger of a million payments. Goal: of 100,000
// payments, History ≤ 50 ms.
func BenchmarkMillionReport(b *testing.B) {
	s := history.Million(b)
	b.Run("Export", func(b *testing.B) {
		for b.Loop() {
			err := report.Each(b.Context(), s, report.Range{}, func(history.Payment) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Prune", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := content.Prune(b.Context(), s, time.Unix(1, 0), false); err != nil {
				b.Fatal(err)
			}
		}
	})
	week := time.Now().Add(-7 * 24 * time.Hour) // in the middle of a day, and of an hour
	for _, c := range []struct {
		name string
		report.Filter
	}{
		{"Newest", report.Filter{}},
		{"Page", report.Filter{Before: fmt.Sprintf("pay_%032x", history.Size()/2), Limit: 100}},
		{"After", report.Filter{After: week}},
		{"Settled", report.Filter{State: history.Settled}},
		{"URLOfAll", report.Filter{URL: "https://"}},
		{"URLOfAHundredth", report.Filter{URL: "host7.example/item"}},
		{"URLOfAHundredthAfter", report.Filter{URL: "host7.example/item", After: week}},
		{"URLOfOne", report.Filter{URL: "https://host7.example/item/77007"}},
		{"URLOfNone", report.Filter{URL: "nowhere.example"}},
	} {
		b.Run("History"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, _, _, err := report.List(b.Context(), s, c.Filter); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Parts"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := report.AddUp(b.Context(), s, c.Filter, 10); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
