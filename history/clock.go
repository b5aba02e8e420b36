package history

import (
	"context"
	"database/sql"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// Where the clock is behind the newest payment, the ledger's time stands still
// (tx.notBeforeLedger), so that no window opens twice. A clock that was far ahead for one payment
// stops the windows there for as long. That is safe, and only the owner ends it.

// Redate dates now what is dated ahead of the clock: for the owner, who says that it is right now.
// All of it counts in the windows that are open now. A session that began ahead goes on as one that
// a payment began; approvals of that time are over. The audit chain has one event for all of it.
func (s *Store) Redate(ctx context.Context) error {
	return s.tx(ctx, func(t *tx) error {
		now := sqldb.Micros(t.Now)
		var from, upTo sql.NullInt64
		if err := t.Row(`SELECT min(seq), max(seq) FROM payments WHERE created_at > ?`, now).
			Scan(&from, &upTo); err != nil {
			return err
		}
		for _, change := range []struct {
			query string
			args  []any
		}{
			{`UPDATE payments SET created_at = ? WHERE created_at > ?`, []any{now, now}},
			{`UPDATE payments SET updated_at = ? WHERE updated_at > ?`, []any{now, now}},
			{`UPDATE sessions SET started_at = ?, seal = NULL WHERE started_at > ?`, []any{now, now}},
			{`UPDATE sessions SET last_at = ? WHERE last_at > ?`, []any{now, now}},
		} {
			if _, err := t.Exec(change.query, change.args...); err != nil {
				return err
			}
		}
		t.known.hash, t.known.sealed = nil, nil
		if err := t.rebuildTotals(); err != nil {
			return err
		}
		if err := t.expireWhere(`expires_at > ?`, t.Now.Add(AnswerTime)); err != nil {
			return err
		}
		return t.audit(0, audit.RedatedEvent,
			map[string]int64{"from": from.Int64, "upTo": upTo.Int64, "to": now})
	})
}
