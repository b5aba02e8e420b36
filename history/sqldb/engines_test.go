package sqldb

import (
	"context"
	"testing"

	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// Engines are packages sqlite and postgres, which import this one; package sqldb_test sets them.
var Engines struct {
	OpenFile   func(home, name string) (*DB, error) // makes it, too
	MakeServer func(ctx context.Context, url string) error
	OpenServer func(url string) (*DB, error)
}

// engines make an empty database each.
var engines = []struct {
	name string
	db   func(t *testing.T) *DB
}{
	{"SQLite", func(t *testing.T) *DB { return openIn(t, t.TempDir()) }},
	{"PostgreSQL", func(t *testing.T) *DB { return openPostgres(t, emptyPostgres(t)) }},
}

// eachEngine runs a test on a database of each engine, with an empty table.
func eachEngine(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			db := e.db(t)
			require.NoError(t, db.Write(t.Context(), func(tx *Tx) error { return tx.ExecAll(table) }))
			test(t, db)
		})
	}
}

// table is what tests write to.
const table = "CREATE TABLE words (key TEXT PRIMARY KEY, n INTEGER NOT NULL);\n"

const fileName = "test.db"

// openIn opens the database of a folder, and makes it if there is none.
func openIn(t *testing.T, home string) *DB {
	t.Helper()
	db := must.Get(Engines.OpenFile(home, fileName))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// homeWithTable is a folder with a database of SQLite in it.
func homeWithTable(t *testing.T) (*DB, string) {
	t.Helper()
	home := t.TempDir()
	db := openIn(t, home)
	require.NoError(t, db.Write(t.Context(), func(tx *Tx) error { return tx.ExecAll(table) }))
	return db, home
}

// put is a change that writes a word.
func put(key string) func(*Tx) error {
	return func(tx *Tx) error {
		return must.Err(tx.Exec(`INSERT INTO words (key, n) VALUES (?, 1)`, key))
	}
}

// count is how many words there are.
func count(t *testing.T, db *DB) (n int) {
	t.Helper()
	n = must.Get(Read(context.Background(), db, words))(t)
	return n
}

func words(tx *Tx) (n int, err error) {
	err = tx.Row(`SELECT count(*) FROM words`).Scan(&n)
	return n, err
}

// has reports whether a word was written.
func has(t *testing.T, db *DB, key string) (yes bool) {
	t.Helper()
	yes = must.Get(Read(context.Background(), db, func(tx *Tx) (bool, error) {
		return tx.Is(`SELECT count(*) > 0 FROM words WHERE key = ?`, key)
	}))(t)
	return yes
}
