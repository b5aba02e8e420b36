package book

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Microsecond) // no two sales at once
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

var engines = []struct {
	name string
	book func(t *testing.T) (*Book, *clock)
}{
	{"SQLite", inFile},
	{"PostgreSQL", onServer},
}

func eachEngine(t *testing.T, test func(t *testing.T, b *Book, c *clock)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			b, c := e.book(t)
			test(t, b, c)
		})
	}
}

var places sync.Map

func inFile(t *testing.T) (*Book, *clock) {
	c := newClock()
	return made(t, Place{Home: t.TempDir(), Now: c.now}), c
}

// testServer is one database for all tests, which go one after the other.
var testServer struct {
	sync.Mutex
	url string
}

func server(t *testing.T) *sqldb.Postgres {
	testServer.Lock()
	defer testServer.Unlock()
	if testServer.url == "" {
		testServer.url = pgtest.Shared(t).Database(t)
	}
	return &sqldb.Postgres{URL: testServer.url}
}

func onServer(t *testing.T) (*Book, *clock) {
	c := newClock()
	b := made(t, Place{Server: server(t), Now: c.now})
	require.NoError(t, b.write(t.Context(), func(tx *tx) error {
		return tx.ExecAll("DELETE FROM sales;\nDELETE FROM sold_channels;\n")
	}))
	return b, c
}

func made(t *testing.T, p Place) *Book {
	b := must.Get(Make(t.Context(), p))(t)
	places.Store(b, p)
	t.Cleanup(func() {
		places.Delete(b)
		require.NoError(t, b.Close())
	})
	return b
}

// besides is the book as another process has it open.
func besides(t *testing.T, b *Book) *Book {
	place, _ := places.Load(b)
	other := must.Get(Open(t.Context(), place.(Place)))(t)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	return other
}

func occupy(b *Book) (release func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = b.write(context.Background(), func(*tx) error { close(begun); <-end; return nil })
	}()
	<-begun
	return func() { close(end) }
}

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
