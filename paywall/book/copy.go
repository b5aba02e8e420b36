package book

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/sqldb/rows"
	"x402-wallet/history/sqldb/sqlite"
	"x402-wallet/x402"
)

// CopyTo copies the book to a place that has none yet, and compares nothing: a book has no audit chain. It is
// refused while sales are under way, which could be settled in one of two books, and if something was written
// meanwhile.
func (b *Book) CopyTo(ctx context.Context, to Place) error {
	fill := func(into *sqldb.Tx) error { return b.copyInto(ctx, into) }
	if to.Server != nil {
		return postgres.Create(ctx, to.postgres(), schema(), fill)
	}
	err := sqlite.Create(ctx, to.sqlite(), schema(), fill)
	if errors.Is(err, fs.ErrExist) {
		err = x402.Errorf(x402.LedgerUnavailable, "copy the book of sales: %w", err).
			WithHint("move %s out of the home first: a copy replaces no file", FileName)
	}
	return err
}

func (b *Book) copyInto(ctx context.Context, into *sqldb.Tx) error {
	var before mark
	err := b.view(ctx, func(t *tx) (err error) {
		if err := t.isFinished(); err != nil {
			return err
		}
		if before, err = t.mark(); err != nil {
			return err
		}
		for _, table := range []string{"meta", "sales", "sold_channels"} {
			if err := rows.Copy(table, t.Tx, into); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	now, err := read(ctx, b, (*tx).mark)
	if err == nil && now != before {
		err = x402.Errorf(x402.LedgerUnavailable, "something was sold while the book of sales was copied").
			WithHint("stop the paywalls of this home, and copy it again")
	}
	return err
}

// diedAfter is how old the last change of a sale under way is if its process is taken for dead.
const diedAfter = time.Hour

// isFinished refuses a book with sales that are under way.
func (t *tx) isFinished() error {
	var n int
	err := t.Row(`SELECT count(*) FROM sales WHERE state IN ('running', 'settling') AND updated_at >= ?`,
		sqldb.Micros(t.Now.Add(-diedAfter))).Scan(&n)
	if err == nil && n > 0 {
		err = x402.Errorf(x402.LedgerUnavailable, "%d sales are under way", n).
			WithHint("stop the paywalls of this home; what one left behind that died counts for an hour")
	}
	return err
}

// mark is how far a book has come.
type mark struct{ last, updated int64 }

func (t *tx) mark() (m mark, err error) {
	err = t.Row(`SELECT coalesce(max(seq), 0), coalesce(max(updated_at), 0) FROM sales`).
		Scan(&m.last, &m.updated)
	return m, err
}
