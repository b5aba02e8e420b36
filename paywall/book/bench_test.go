package book

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
)

// BenchmarkSale is what the book takes of a sale: looked up, opened, about to be settled and settled, by
// 64 buyers at once.
func BenchmarkSale(b *testing.B) {
	book, err := Make(b.Context(), Place{Home: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer book.Close()
	var made atomic.Int64
	sell := func() error {
		sale := testSale(fmt.Sprint("nonce ", made.Add(1)), 1000)
		if _, err := book.SaleByKey(b.Context(), sale.UniqueKey); !errors.Is(err, ErrNotFound) {
			return err
		}
		sale, err := book.OpenSale(b.Context(), sale)
		if err != nil {
			return err
		}
		sale.State = SaleSettling
		if err := book.MoveSale(b.Context(), sale); err != nil {
			return err
		}
		sale.State, sale.Transaction, sale.Receipt = SaleSettled, "0xtx", []byte(`{"success":true}`)
		return book.MoveSale(b.Context(), sale)
	}
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := sell(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sales/s")
}
