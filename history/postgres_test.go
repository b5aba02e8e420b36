package history

import (
	"context"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"x402-wallet/history/internal/schema"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
)

// testServer is one database for all tests, which go one after the other.
var testServer struct {
	sync.Mutex
	url string
}

// postgresStore is an empty ledger in PostgreSQL, whose time is the clock's.
func postgresStore(t *testing.T) (*Store, *clock) {
	t.Helper()
	c := &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	emptyPostgres(t)
	return openTestServer(t, Options{Contents: Keeper, Now: c.now}), c
}

// openTestServer is another replica of the tests' ledger.
func openTestServer(t testing.TB, o Options) *Store {
	t.Helper()
	s := must.Get(OpenPostgres(t.Context(), t.TempDir(), postgres.Server{URL: testServer.url}, o))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// makePostgres makes a ledger in a database without one.
func makePostgres(t require.TestingT, url string) {
	made, err := MakePostgres(context.Background(), postgres.Server{URL: url})
	require.NoError(t, err)
	require.True(t, made)
}

// emptyPostgres empties the ledger in the tests' database, which it makes the first time.
func emptyPostgres(t *testing.T) {
	t.Helper()
	p := &testServer
	p.Lock()
	defer p.Unlock()
	if p.url == "" {
		p.url = pgtest.Shared(t).Database(t)
		makePostgres(t, p.url)
		return
	}
	db := must.Get(postgres.Open(postgres.Server{URL: p.url}))(t)
	defer db.Close()
	require.NoError(t, db.Write(t.Context(), func(d *sqldb.Tx) error {
		for _, table := range append(schema.Tables(), "instances") {
			if _, err := d.Exec(`DELETE FROM ` + table); err != nil {
				return err
			}
		}
		if _, err := d.Exec(`INSERT INTO content_use VALUES (1, 0, 0)`); err != nil {
			return err
		}
		return Found(d)
	}))
}

func init() {
	engines = append(engines, engines[0])
	engines[1].name, engines[1].store = "PostgreSQL", postgresStore
}
