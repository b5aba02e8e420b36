package history

import (
	"context"
	"database/sql"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
)

// Where the clock is behind the newest payment, the ledger's time stands still
// (tx.notBeforeLedger), so that no window opens twice. A clock that was far ahead for one payment
// stops the windows there for as long. That is safe, and only the owner ends it.

// Ahead is the latest time in the ledger, where that is so far ahead of the clock that somebody has
// to look; else zero.
func (s *Store) Ahead(ctx context.Context) (time.Time, error) {
	return read(ctx, s, func(t *tx) (latest time.Time, err error) {
		if t.fleet != nil { // t.Now is its time, which is not behind
			var now int64
			if err := t.row(`SELECT clock()`).Scan(&now); err != nil {
				return latest, err
			}
			t.Now = fromMicros(now)
		}
		var made, settled int64
		err = t.slowRow(`SELECT coalesce((SELECT max(created_at) FROM payments), 0),
			coalesce((SELECT max(updated_at) FROM payments WHERE state = 'settled'), 0)`).Scan(&made, &settled)
		latest = fromMicros(max(made, settled))
		if latest.Sub(t.Now) <= budget.ClockTolerance {
			latest = time.Time{}
		}
		return latest, err
	})
}

// redatedEvent says that what was dated ahead is dated then.
const redatedEvent = "redated"

// Redate dates now what is dated ahead of the clock: for the owner, who says that it is right now.
// All of it counts in the windows that are open now. A session that began ahead goes on as one that
// a payment began; approvals of that time are over. The audit chain has one event for all of it.
func (s *Store) Redate(ctx context.Context) error {
	if s.fleet != nil {
		return x402.Errorf(x402.LedgerUnavailable, "a fleet's ledger is not dated anew: its budgets "+
			"would open twice").
			WithHint("its time goes on when its server's clock has come to it; until then no window ends")
	}
	return s.tx(ctx, func(t *tx) error {
		now := micros(t.Now)
		var from, upTo sql.NullInt64
		if err := t.row(`SELECT min(seq), max(seq) FROM payments WHERE created_at > ?`, now).
			Scan(&from, &upTo); err != nil {
			return err
		}
		for _, change := range []struct {
			query string
			args  []any
		}{
			{`UPDATE payments SET created_at = min(created_at, ?1), updated_at = min(updated_at, ?1)
				WHERE created_at > ?1 OR updated_at > ?1`, []any{now}},
			{`UPDATE sessions SET started_at = min(started_at, ?1), last_at = min(last_at, ?1),
				seal = CASE WHEN started_at > ?1 THEN NULL ELSE seal END WHERE last_at > ?1`, []any{now}},
		} {
			if _, err := t.exec(change.query, change.args...); err != nil {
				return err
			}
		}
		t.known.newest, t.known.sealed = 0, nil
		if err := t.rebuildTotals(); err != nil {
			return err
		}
		if err := t.expireWhere(`expires_at > ?`, t.Now.Add(waitFor)); err != nil {
			return err
		}
		return t.audit(0, redatedEvent, map[string]int64{"from": from.Int64, "upTo": upTo.Int64, "to": now})
	})
}
