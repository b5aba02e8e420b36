package history

import (
	"context"
	"os"
	"path/filepath"

	"x402-wallet/history/internal/schema"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// A ledger is copied row by row, with its name and its audit chain: from ledger.db into PostgreSQL, or back.
// The copy is compared with its chain before it counts, and then the ledger that it was made from is frozen,
// so that nothing is paid from both.

// Verify compares every row of a ledger with its audit chain, and returns how many rows the chain has:
// verify.Tx.
type Verify func(*sqldb.Tx) (rows int, err error)

// CopyToPostgres copies the ledger into an empty database. also copies what belongs to it: if it fails, the
// ledger is neither copied nor frozen.
func (s *Store) CopyToPostgres(ctx context.Context, p sqldb.Postgres, verify Verify,
	also func(context.Context) error) (made Backup, err error) {
	err = sqldb.CreatePostgres(ctx, p, schema.Postgres(), func(d *sqldb.Tx) error {
		made, err = s.copyInto(ctx, d, verify, also)
		return err
	})
	return made, err
}

// CopyToFile copies the ledger into a new ledger.db in a folder. The file gets its name when the copy is
// whole. verify and also are those of CopyToPostgres.
func (s *Store) CopyToFile(ctx context.Context, home string, verify Verify,
	also func(context.Context) error) (made Backup, err error) {
	file := filepath.Join(home, FileName)
	if err := isNew(file); err != nil {
		return made, x402.Errorf(x402.LedgerUnavailable, "there is another ledger: %w", err).
			WithHint("move it away: a copy of the ledger replaces no file")
	}
	at := sqldb.SQLite{Home: home, Name: FileName}
	err = sqldb.CreateSQLite(ctx, at, schema.SQLite(), func(d *sqldb.Tx) error {
		made, err = s.copyInto(ctx, d, verify, also)
		return err
	})
	if info, failed := os.Lstat(file); failed == nil {
		made.Bytes = info.Size()
	}
	return made, err
}

// copyInto copies every row into the empty tables of another database, compares the copy with its chain,
// calls also, and freezes this ledger, unless something was written to it meanwhile.
func (s *Store) copyInto(ctx context.Context, d *sqldb.Tx, verify Verify,
	also func(context.Context) error) (made Backup, err error) {
	var last int64
	err = s.view(ctx, func(t *tx) error {
		if err := t.isFinished(); err != nil {
			return err
		}
		if err := t.readEnds(); err != nil {
			return err
		}
		last, made.Payments = t.known.head, t.known.last
		for _, table := range schema.Tables() {
			if _, err := d.Exec(`DELETE FROM ` + table); err != nil {
				return err
			}
			if err := t.CopyRows(table, d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return made, err
	}
	rows, err := verify(d)
	if err != nil {
		return made, err
	}
	made.Events = int64(rows)
	if err := also(ctx); err != nil {
		return made, err
	}
	return made, s.tx(ctx, func(t *tx) error {
		if err := t.readEnds(); err != nil {
			return err
		}
		if t.known.head != last {
			return x402.Errorf(x402.LedgerUnavailable, "the ledger changed while it was copied").
				WithHint("stop the processes that use this wallet, and copy it again")
		}
		return t.freeze(Freeze{By: byOwner, Why: "the ledger was copied to another database"})
	})
}

// isFinished refuses a ledger with payments whose outcome is not known: they could be finished in one of two
// ledgers.
func (t *tx) isFinished() error {
	n, err := scanNumber(t.Row(`SELECT count(*) FROM payments WHERE ` + unfinished))
	if err == nil && n > 0 {
		err = x402.Errorf(x402.LedgerUnavailable, "%d payments are unfinished", n).
			WithHint("finish them first: x402-wallet reconcile")
	}
	return err
}
