package alerts

import (
	"context"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/turns"
)

const (
	// MaxTries is how often an alert is tried before it is given up.
	MaxTries = 3
	// tellWithin is how old an alert may be that nobody was told of: what the owner named no way for, or no
	// process ran to tell, is for the list then.
	tellWithin = 7 * 24 * time.Hour
	// maxPutOff is farther away than any alert is put off: what waits longer was put off by a clock that was
	// ahead.
	maxPutOff = time.Hour
)

// Next is when the next alert that waits may be told, and false if none waits.
func Next(ctx context.Context, s *history.Store) (next time.Time, waits bool, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		at, err := sqldb.Find(t, sqldb.ScanNumber,
			`SELECT next_at FROM alerts WHERE state = 'waiting' ORDER BY next_at LIMIT 1`)
		if err != nil || at == nil {
			return err
		}
		next, waits = sqldb.FromMicros(*at), true
		if next.After(t.Now.Add(maxPutOff)) {
			next = time.Time{}
		}
		return nil
	})
	return next, waits, err
}

// Due lists what waits to be told now, oldest first, for the holder of a turn; and how often the owner was
// told something since a time. With all, what was held back is due too. What was settled before anybody was
// told of it is over by that: an approval that was answered, a freeze that was lifted, a payment that was
// cleared up.
func Due(ctx context.Context, s *history.Store, turn turns.Turn, all bool, since time.Time) (due []Alert,
	recent int, err error) {
	err = s.Write(ctx, func(t *sqldb.Tx) error {
		due, recent = nil, 0
		if err := turn.Check(t); err != nil {
			return err
		}
		if err := endAlerts(t); err != nil {
			return err
		}
		now, latest := sqldb.Micros(t.Now), sqldb.Micros(t.Now.Add(maxPutOff))
		heldUntil := now
		if all {
			heldUntil = latest
		}
		due, err = sqldb.Collect(t, scan, selectAlert+` WHERE state = 'waiting' AND (next_at > ? OR next_at <=
			CASE WHEN attempts = 0 THEN CAST(? AS BIGINT) ELSE CAST(? AS BIGINT) END) ORDER BY at, id`,
			latest, heldUntil, now)
		if err != nil {
			return err
		}
		return t.Row(`SELECT count(DISTINCT told_as) FROM alerts WHERE told_at >= ? AND told_at <= ?`,
			sqldb.Micros(since), now).Scan(&recent)
	})
	return due, recent, err
}

// endAlerts ends those that nobody needs to be told of any more.
func endAlerts(t *sqldb.Tx) error {
	now := sqldb.Micros(t.Now)
	for _, over := range []struct {
		which string
		args  []any
	}{
		{`at < ?`, []any{sqldb.Micros(t.Now.Add(-tellWithin))}},
		{`kind = 'approval' AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.id = alerts.subject
			AND approvals.state = 'pending' AND approvals.expires_at > ?)`, []any{now}},
		{`kind = 'freeze' AND CAST(win AS BIGINT) <= (SELECT coalesce(max(upto), 0) FROM lifts)`, nil},
		{`kind = 'payment' AND NOT EXISTS (SELECT 1 FROM payments WHERE payments.id = alerts.subject
			AND payments.state IN ('submitted', 'unknown'))`, nil},
	} {
		_, err := t.Exec(`UPDATE alerts SET state = 'over' WHERE state = 'waiting' AND `+over.which,
			over.args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// MarkTold notes that the owner was told of alerts, by one notice. turns.ErrNone: by somebody whose
// turn it was no longer, so that it may be told again.
func MarkTold(ctx context.Context, s *history.Store, turn turns.Turn, notice string, ids ...string) error {
	return each(ctx, s, turn, ids, func(t *sqldb.Tx, id string) error {
		_, err := t.Exec(`UPDATE alerts SET state = 'told', told_at = ?, told_as = ?
			WHERE id = ? AND state = 'waiting'`, sqldb.Micros(t.Now), notice, id)
		return err
	})
}

// HoldBack lets alerts wait until a time, because too much was told.
func HoldBack(ctx context.Context, s *history.Store, turn turns.Turn, until time.Time,
	ids ...string) error {
	return each(ctx, s, turn, ids, func(t *sqldb.Tx, id string) error {
		_, err := t.Exec(`UPDATE alerts SET next_at = ? WHERE id = ? AND state = 'waiting'`,
			sqldb.Micros(until), id)
		return err
	})
}

// MarkFailed notes that alerts could not be told. They are tried again at a time, or given up (MaxTries).
func MarkFailed(ctx context.Context, s *history.Store, turn turns.Turn, again time.Time,
	ids ...string) error {
	return each(ctx, s, turn, ids, func(t *sqldb.Tx, id string) error {
		_, err := t.Exec(`UPDATE alerts SET next_at = ?, attempts = attempts + 1,
				state = CASE WHEN attempts + 1 >= ? THEN 'failed' ELSE 'waiting' END
			WHERE id = ? AND state = 'waiting'`, sqldb.Micros(again), MaxTries, id)
		return err
	})
}

// each changes each of some alerts, in one transaction of the turn's holder.
func each(ctx context.Context, s *history.Store, turn turns.Turn, ids []string,
	f func(t *sqldb.Tx, id string) error) error {
	return s.Write(ctx, func(t *sqldb.Tx) error {
		if err := turn.Check(t); err != nil {
			return err
		}
		for _, id := range ids {
			if err := f(t, id); err != nil {
				return err
			}
		}
		return nil
	})
}
