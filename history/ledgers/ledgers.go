// Package ledgers makes and opens ledgers: a file of SQLite in the wallet's home, or a schema of PostgreSQL.
//
// What must stay true: a ledger that is missing, or that is another one than before, is an error and never a
// new one, because a new ledger is a full budget.
package ledgers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"x402-wallet/history"
	"x402-wallet/history/internal/schema"
	"x402-wallet/history/processes"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/sqldb/sqlite"
	"x402-wallet/x402"
)

// Create makes the ledger of a new wallet. One that is there is fs.ErrExist, and stays as it is.
func Create(ctx context.Context, home string, o history.Options) error {
	at := sqlite.File{Home: home, Name: history.FileName, Now: o.Now}
	return sqlite.Create(ctx, at, schema.SQLite(), history.Found)
}

// Open opens the ledger that Create made. A missing one is LEDGER_CORRUPT.
func Open(ctx context.Context, home string, o history.Options) (*history.Store, error) {
	info, err := os.Lstat(filepath.Join(home, history.FileName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, x402.Errorf(x402.LedgerCorrupt,
			"the ledger %s is missing; without it no budget is known", history.FileName).
			WithHint("restore %s from a backup; nothing is paid without it", history.FileName).
			WithCommand(x402.Command("doctor"), "The wallet's ledger is gone: please restore "+
				history.FileName+" from a backup. Nothing is paid without it.")
	case err != nil:
		return nil, x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	case !info.Mode().IsRegular():
		return nil, x402.Errorf(x402.LedgerUnavailable, "the ledger %s is not a regular file",
			history.FileName)
	case info.Size() == 0: // SQLite would take it for a new database
		return nil, sqldb.Damaged("open the ledger", errors.New("it is empty"))
	}
	db, err := sqlite.Open(sqlite.File{Home: home, Name: history.FileName, Now: o.Now})
	if err != nil {
		return nil, err
	}
	join := func() history.Process { return processes.Files(home) }
	return history.New(ctx, db, home, join, o)
}

// MakePostgres makes the ledger of a new wallet, in a schema of its own, and reports whether there was none.
func MakePostgres(ctx context.Context, p postgres.Server) (made bool, err error) {
	return postgres.Make(ctx, p, schema.Postgres(), history.Found)
}

// OpenPostgres opens the ledger that MakePostgres made. home is where this replica keeps its checkpoint and
// its locks. A server that has another ledger by the time of a later connection is LEDGER_CORRUPT.
func OpenPostgres(ctx context.Context, home string, p postgres.Server, o history.Options) (*history.Store,
	error) {
	p.Now, p.Check = o.Now, sameLedger()
	db, err := postgres.Open(p)
	if err != nil {
		return nil, err
	}
	return history.New(ctx, db, home, processes.Rows(db, o.AliveFor), o)
}

// sameLedger checks each new connection: behind it is a ledger of this format, and always the same one.
func sameLedger() func(ask func(query string) (string, error)) error {
	var mu sync.Mutex
	var ledger string // of the first connection
	return func(ask func(query string) (string, error)) error {
		is, err := ask(`SELECT coalesce(CAST(to_regclass('x402.meta') AS TEXT), '')`)
		if err == nil && is == "" {
			err = x402.Errorf(x402.LedgerCorrupt, "the database that ledger.url names has no ledger").
				WithHint("look at ledger.url; x402-wallet init makes a ledger, and x402-wallet ledger copy " +
					"moves one")
		}
		if err != nil {
			return err
		}
		is, err = ask(`SELECT value || ' ' || (SELECT value FROM x402.meta WHERE key = 'ledger_id')
			FROM x402.meta WHERE key = 'format'`)
		if err != nil {
			return err
		}
		format, id, _ := strings.Cut(is, " ")
		err = history.CheckFormat(format)
		if err == nil && id == "" {
			err = sqldb.Damaged("read the ledger's id", errors.New("it has none"))
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if ledger != "" && ledger != id {
			return x402.Errorf(x402.LedgerCorrupt, "the server has another ledger now: %s, and not %s", id,
				ledger).
				WithHint("nothing is paid until the owner has looked: see ledger.url")
		}
		ledger = id
		return nil
	}
}
