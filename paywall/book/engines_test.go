package book

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
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
	t.Helper()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			b, c := e.book(t)
			test(t, b, c)
		})
	}
}

var places sync.Map

func inFile(t *testing.T) (*Book, *clock) {
	t.Helper()
	c := newClock()
	return made(t, Place{Home: t.TempDir(), Now: c.now}), c
}

// testServer is one database for all tests, which go one after the other.
var testServer struct {
	sync.Mutex
	url string
}

func server(t *testing.T) *postgres.Server {
	t.Helper()
	testServer.Lock()
	defer testServer.Unlock()
	if testServer.url == "" {
		testServer.url = pgtest.Shared(t).Database(t)
	}
	return &postgres.Server{URL: testServer.url}
}

func onServer(t *testing.T) (*Book, *clock) {
	t.Helper()
	c := newClock()
	b := made(t, Place{Server: server(t), Now: c.now})
	require.NoError(t, b.write(t.Context(), func(tx *tx) error {
		return tx.ExecAll("DELETE FROM sales;\nDELETE FROM sold_channels;\n")
	}))
	return b, c
}

func made(t *testing.T, p Place) *Book {
	t.Helper()
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
	t.Helper()
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

// A book is made once, however many paywalls of a home start at once, and is its owner's alone.
func TestMake(t *testing.T) {
	for name, place := range map[string]Place{"SQLite": {Home: t.TempDir()},
		"PostgreSQL": {Server: &postgres.Server{URL: pgtest.Shared(t).Database(t)}}} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, must.Err(Open(t.Context(), place)), ErrNone)

			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					b, err := Make(t.Context(), place)
					if err == nil {
						_, err = b.OpenSale(t.Context(), testSale(string(rune('a'+i)), 1))
						err = errors.Join(err, b.Close())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			list, _, _, err := made(t, place).Sales(t.Context(), SaleFilter{})
			require.NoError(t, err)
			require.Len(t, list, 4)

			if place.Server != nil {
				return
			}
			info := must.Get(os.Stat(filepath.Join(place.Home, FileName)))(t)
			if runtime.GOOS != "windows" {
				require.Equal(t, os.FileMode(0o600), info.Mode())
			}
			require.Empty(t, must.Get(filepath.Glob(filepath.Join(place.Home, ".*")))(t))
		})
	}
}

// What is no book, or one of another format, is not sold by, and stays as it is.
func TestOpen_NoBook(t *testing.T) {
	empty := Place{Home: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(empty.Home, FileName), nil, 0o600))
	for range 2 {
		_, err := Make(t.Context(), empty)
		require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
	}

	folder := Place{Home: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(folder.Home, FileName), 0o700))
	require.ErrorContains(t, must.Err(Open(t.Context(), folder)), "not a regular file")

	newer := Place{Home: t.TempDir()}
	b := made(t, newer)
	require.NoError(t, b.write(t.Context(), func(tx *tx) error {
		_, err := tx.Exec(`UPDATE meta SET value = '99' WHERE key = 'format'`)
		return err
	}))
	require.ErrorContains(t, must.Err(Open(t.Context(), newer)), "the book of sales has format 99")
}

// A file that was taken away under a paywall takes no sales: nobody would find them.
func TestOpenSale_OfABookThatIsGone(t *testing.T) {
	home := t.TempDir()
	b := made(t, Place{Home: home})
	must.Get(b.OpenSale(t.Context(), testSale("before", 1)))(t)
	require.NoError(t, os.Rename(filepath.Join(home, FileName), filepath.Join(home, "elsewhere")))
	_, err := b.OpenSale(t.Context(), testSale("nonce", 1))
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
}

// A server that has another book by the time of a later connection is not sold by.
func TestAnotherServer(t *testing.T) {
	one, other := pgtest.Shared(t).Database(t), pgtest.Shared(t).Database(t)
	for _, url := range []string{one, other} {
		made(t, Place{Server: &postgres.Server{URL: url}})
	}
	place := Place{Server: &postgres.Server{URL: one}}
	o := place.postgres()
	look := func(url string) error {
		p := o // with the same memory of the first connection
		p.URL = url
		db := must.Get(postgres.Open(p))(t)
		defer db.Close()
		return db.View(t.Context(), func(*sqldb.Tx) error { return nil })
	}
	require.NoError(t, look(one))
	require.NoError(t, look(one))
	require.True(t, x402.HasCode(look(other), x402.LedgerCorrupt))
}

// A book goes into PostgreSQL and back with all of its sales and channels, if none is under way.
func TestCopyTo(t *testing.T) {
	b, clock := inFile(t)
	require.NoError(t, b.ChargeChannel(t.Context(), sellByVoucher(t, b, clock, "1000", 0), charged(1000)))
	running := must.Get(b.OpenSale(t.Context(), testSale("running", 7)))(t)

	server := Place{Server: &postgres.Server{URL: pgtest.Shared(t).Database(t)}, Now: clock.now}
	back := Place{Home: t.TempDir(), Now: clock.now}
	err := b.CopyTo(t.Context(), server)
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, "1 sales are under way")
	require.ErrorIs(t, must.Err(Open(t.Context(), server)), ErrNone)

	clock.set(clock.now().Add(diedAfter + time.Second)) // its process died
	require.NoError(t, b.CopyTo(t.Context(), server))
	copied := made(t, server)
	require.NoError(t, copied.CopyTo(t.Context(), back))
	require.Error(t, copied.CopyTo(t.Context(), back), "it replaces nothing")

	for _, is := range []*Book{copied, made(t, back)} {
		list, _, earned, err := is.Sales(t.Context(), SaleFilter{})
		require.NoError(t, err)
		want, _, wantEarned, err := b.Sales(t.Context(), SaleFilter{})
		require.NoError(t, err)
		require.Equal(t, want, list)
		require.Equal(t, wantEarned, earned)
		owed := must.Get(is.OwedChannels(t.Context()))(t)
		require.Equal(t, must.Get(b.OwedChannels(t.Context()))(t), owed)

		running.State = SaleFailed
		require.NoError(t, is.MoveSale(t.Context(), running))
		next, err := is.OpenSale(t.Context(), testSale("next", 1))
		require.NoError(t, err, "rows are numbered on")
		require.NoError(t, is.DropSale(t.Context(), next.ID))
	}
}
