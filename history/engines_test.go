package history

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// engines make an empty ledger each, whose time is the clock's.
var engines = []struct {
	name  string
	store func(t *testing.T) (*Store, *clock)
}{
	{"SQLite", func(t *testing.T) (*Store, *clock) { s, c, _ := emptyStore(t); return s, c }},
}

// eachEngine runs a test on an empty ledger of each engine.
func eachEngine(t *testing.T, test func(t *testing.T, s *Store, c *clock)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			s, c := e.store(t)
			test(t, s, c)
		})
	}
}

// besides is the store of another process of the same ledger.
func besides(t *testing.T, s *Store) *Store {
	t.Helper()
	other := must.Get(openNamed(t.Context(), nameOf(s), Options{Now: s.db.Now}))(t)
	t.Cleanup(func() { other.Close() })
	return other
}

// nameOf names a ledger for other processes, which open it by openNamed.
func nameOf(s *Store) string {
	if s.Shared() {
		return s.home + " " + testServer.url
	}
	return s.home
}

func openNamed(ctx context.Context, name string, o Options) (*Store, error) {
	o.Contents = Keeper
	home, url, isShared := strings.Cut(name, " ")
	if isShared {
		return OpenPostgres(ctx, home, postgres.Server{URL: url}, o)
	}
	return Open(ctx, home, o)
}

// pastStores are the connections of rawDB, by the ledger.
var pastStores sync.Map

// rawDB is one connection to a ledger past its store.
func rawDB(t testing.TB, s *Store) *sql.DB {
	t.Helper()
	if open, is := pastStores.Load(s.database); is {
		return open.(*sql.DB)
	}
	open := openRaw
	if s.Shared() {
		open = func(string) (*sql.DB, error) { return sql.Open("pgx", testServer.url+"&search_path=x402") }
	}
	db := must.Get(open(s.home))(t)
	db.SetMaxOpenConns(1) // what it keeps aside is its connection's
	pastStores.Store(s.database, db)
	t.Cleanup(func() {
		pastStores.Delete(s.database)
		require.NoError(t, db.Close())
	})
	return db
}

// openRaw opens the ledger of a home past any store.
func openRaw(home string) (*sql.DB, error) {
	path := (&url.URL{Path: filepath.Join(home, FileName)}).EscapedPath()
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
}

// ask asks a ledger past the store for one row.
func ask(t testing.TB, s *Store, query string, args ...any) *sql.Row {
	t.Helper()
	return rawDB(t, s).QueryRow(postgres.Numbered(query), args...)
}

// forge changes a ledger past the store.
func forge(t testing.TB, s *Store, query string, args ...any) {
	t.Helper()
	must.Get(rawDB(t, s).Exec(postgres.Numbered(query), args...))(t)
}
