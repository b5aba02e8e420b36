package backup

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"x402-wallet/history"
	"x402-wallet/history/internal/schema"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/sqldb/rows"
	"x402-wallet/history/sqldb/sqlite"
	"x402-wallet/history/verify"
	"x402-wallet/x402"
)

// A ledger is copied row by row, with its name and its audit chain: from ledger.db into PostgreSQL, or back.
// The copy is compared with its chain before it counts, and then the ledger that it was made from is frozen,
// so that nothing is paid from both.

// ToPostgres copies the ledger into an empty database. also copies what belongs to it: if it fails, the
// ledger is neither copied nor frozen.
func ToPostgres(ctx context.Context, s *history.Store, p postgres.Server,
	also func(context.Context) error) (made Copy, err error) {
	err = postgres.Create(ctx, p, schema.Postgres(), func(d *sqldb.Tx) error {
		made, err = copyInto(ctx, s, d, also)
		return err
	})
	return made, err
}

// ToHome copies the ledger into a new ledger.db in a folder. The file gets its name when the copy is whole.
// also is that of ToPostgres.
func ToHome(ctx context.Context, s *history.Store, home string,
	also func(context.Context) error) (made Copy, err error) {
	file := filepath.Join(home, history.FileName)
	if err := isNew(file); err != nil {
		return made, x402.Errorf(x402.LedgerUnavailable, "there is another ledger: %w", err).
			WithHint("move it away: a copy of the ledger replaces no file")
	}
	at := sqlite.File{Home: home, Name: history.FileName}
	err = sqlite.Create(ctx, at, schema.SQLite(), func(d *sqldb.Tx) error {
		made, err = copyInto(ctx, s, d, also)
		return err
	})
	if info, failed := os.Lstat(file); failed == nil {
		made.Bytes = info.Size()
	}
	return made, err
}

// copyInto copies every row into the empty tables of another database, compares the copy with its chain,
// calls also, and freezes this ledger, unless something was written to it meanwhile.
func copyInto(ctx context.Context, s *history.Store, d *sqldb.Tx,
	also func(context.Context) error) (made Copy, err error) {
	var last int64
	err = s.View(ctx, func(t *sqldb.Tx) error {
		if err := isFinished(t); err != nil {
			return err
		}
		err := t.Row(`SELECT (SELECT max(seq) FROM audit), (SELECT coalesce(max(seq), 0) FROM payments)`).
			Scan(&last, &made.Payments)
		if err != nil {
			return err
		}
		for _, table := range schema.Tables() {
			if _, err := d.Exec(`DELETE FROM ` + table); err != nil {
				return err
			}
			if err := rows.Copy(table, t, d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return made, err
	}
	rows, err := verify.Tx(d)
	if err != nil {
		return made, err
	}
	made.Events = int64(rows)
	if err := also(ctx); err != nil {
		return made, err
	}
	err = s.FreezeAt(ctx, history.Freeze{By: "owner", Why: "the ledger was copied to another database"}, last)
	if errors.Is(err, history.ErrMoved) {
		err = x402.Errorf(x402.LedgerUnavailable, "the ledger changed while it was copied").
			WithHint("stop the processes that use this wallet, and copy it again")
	}
	return made, err
}

// isFinished refuses a ledger with payments whose outcome is not known: they could be finished in one of two
// ledgers.
func isFinished(t *sqldb.Tx) error {
	n, err := sqldb.ScanNumber(t.Row(`SELECT count(*) FROM payments
		WHERE state IN ('reserved', 'submitted', 'unknown')`))
	if err == nil && n > 0 {
		err = x402.Errorf(x402.LedgerUnavailable, "%d payments are unfinished", n).
			WithHint("finish them first: x402-wallet reconcile")
	}
	return err
}
