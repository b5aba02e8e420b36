package history

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/internal/pgtest"
)

// eachEngine runs a test on an empty ledger of each engine, whose time is the clock's.
func eachEngine(t *testing.T, test func(t *testing.T, s *Store, c *clock)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		s, c, _ := newStore(t)
		test(t, s, c)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		s, c := newFleetStore(t)
		test(t, s, c)
	})
}

// besides is the store of another process of the same home.
func besides(t *testing.T, s *Store) *Store {
	t.Helper()
	o := Options{Now: s.now, ContentQuota: s.contentQuota}
	if s.fleet != nil {
		return openFleetWith(t, s.fleet.Fleet, o)
	}
	other, err := Open(t.Context(), s.home, o)
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	return other
}

func openFleetWith(t *testing.T, f Fleet, o Options) *Store {
	t.Helper()
	s, err := OpenFleet(f, o)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// testFleet is one ledger for all tests, which go one after the other: to empty it takes a tenth of making
// one.
var testFleet struct {
	sync.Mutex
	Fleet
	sql   *sqlOf
	empty string // what deletes all rows: TRUNCATE takes ten times as long
}

// newFleetStore is a fleet's ledger with nothing in it, whose clock is the test's, and with budgets that stop
// nothing.
func newFleetStore(t *testing.T) (*Store, *clock) {
	t.Helper()
	f := &testFleet
	f.Lock()
	defer f.Unlock()
	if f.sql == nil {
		f.Fleet = Fleet{URL: pgtest.Shared(t).Database(t), Writer: "home_a"}
		_, err := CreateFleet(t.Context(), f.Fleet)
		require.NoError(t, err)
		f.sql = &sqlOf{url: f.URL}
		f.empty = f.sql.one(t, `SELECT string_agg('DELETE FROM ' || tablename, '; ') FROM pg_tables
			WHERE schemaname = 'x402' AND tablename NOT IN ('meta', 'locks', 'content_use')`)
		f.sql.setClock(t)
	}
	f.sql.run(t, f.empty+`; UPDATE content_use SET stored = 0, owed = 0; DELETE FROM meta WHERE key NOT IN ('format', 'ledger_id')`)
	c := &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	c.told = func(at time.Time) { f.sql.run(t, fmt.Sprintf(`UPDATE test_clock SET at = %d`, at.UnixMicro())) }
	c.set(c.at)
	s := openFleetWith(t, f.Fleet, Options{Now: c.now})
	applyRules(t, s, 1, budget.Rules{Day: 1 << 40, Month: 1 << 40, Rate: 1 << 30, PerCall: 1 << 40})
	return s, c
}

// rulesAre makes rules those of a fleet's ledger, which keeps the windows that they have.
func rulesAre(t *testing.T, s *Store, rules budget.Rules) {
	t.Helper()
	if s.fleet == nil {
		return
	}
	last, err := s.Rules(t.Context())
	require.NoError(t, err)
	applyRules(t, s, last.Version+1, rules)
}

// sqlOf asks a test's database past the store.
type sqlOf struct {
	url  string
	pool *postgres.Pool // nil: nothing was asked yet
}

func (q *sqlOf) with(t require.TestingT, f func(ctx context.Context, c *postgres.Conn) error) {
	if q.pool == nil {
		var err error
		q.pool, err = postgres.New(postgres.Options{URL: q.url})
		require.NoError(t, err)
	}
	ctx := context.Background()
	require.NoError(t, q.pool.With(ctx, func(c *postgres.Conn) error { return f(ctx, c) }))
}

func (q *sqlOf) run(t require.TestingT, words string) {
	q.with(t, func(ctx context.Context, c *postgres.Conn) error { return c.Run(ctx, words) })
}

func (q *sqlOf) one(t require.TestingT, query string, args ...any) (text string) {
	q.with(t, func(ctx context.Context, c *postgres.Conn) error {
		return queryRow(ctx, fleetConn{c}, query, args...).Scan(&text)
	})
	return text
}

// setClock makes the ledger's clock one that goes on only when it is told.
func (q *sqlOf) setClock(t require.TestingT) {
	q.run(t, `CREATE TABLE test_clock (at BIGINT); INSERT INTO test_clock VALUES (1);
		CREATE OR REPLACE FUNCTION clock() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$ SELECT at FROM test_clock $$`)
}

// forge changes a ledger past the store.
func forge(t *testing.T, s *Store, query string) {
	t.Helper()
	if s.fleet != nil {
		testFleet.sql.run(t, query)
		return
	}
	_, err := s.write.Exec(strings.TrimSpace(query))
	require.NoError(t, err)
}
