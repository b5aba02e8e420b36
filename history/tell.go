package history

import (
	"context"
	"time"
	"x402-wallet/history/sqldb"
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

// NextAlert is when the next alert that waits may be told, and false where none waits.
func (s *Store) NextAlert(ctx context.Context) (next time.Time, waits bool, err error) {
	at, err := readOnce(ctx, s, func(t *tx) (*int64, error) {
		return sqldb.Find(t.Tx, func(row sqldb.Row) (at int64, err error) {
			err = row.Scan(&at)
			return at, err
		}, `SELECT next_at FROM alerts WHERE state = 'waiting' ORDER BY next_at LIMIT 1`)
	})
	if err != nil || at == nil {
		return time.Time{}, false, err
	}
	next = fromMicros(*at)
	if next.After(s.db.Now().Add(maxPutOff)) {
		next = time.Time{}
	}
	return next, true, nil
}

// Due is what waits to be told now.
type Due struct {
	Alerts []Alert // oldest first
	Recent int     // how often the owner was told something since the time that was asked for
}

// Due lists what waits to be told, by the holder of a turn. With all, what was held back too. What was
// settled before anybody was told of it is over by that: an approval that was answered, a freeze that was
// lifted, a payment that was cleared up.
func (s *Store) Due(ctx context.Context, turn Turn, all bool, since time.Time) (d Due, err error) {
	err = s.tx(ctx, func(t *tx) error {
		d = Due{}
		if err := t.hasTurn(turn); err != nil {
			return err
		}
		if err := t.endAlerts(); err != nil {
			return err
		}
		now, latest := micros(t.Now), micros(t.Now.Add(maxPutOff))
		heldUntil := now
		if all {
			heldUntil = latest
		}
		d.Alerts, err = sqldb.Collect(t.Tx, scanAlert, selectAlert+` WHERE state = 'waiting' AND (next_at > ?
			OR next_at <= CASE WHEN attempts = 0 THEN CAST(? AS BIGINT) ELSE CAST(? AS BIGINT) END) ORDER BY at, id`, latest, heldUntil, now)
		if err != nil {
			return err
		}
		return t.Row(`SELECT count(DISTINCT told_as) FROM alerts WHERE told_at >= ? AND told_at <= ?`,
			micros(since), micros(t.Now)).Scan(&d.Recent)
	})
	return d, err
}

// endAlerts ends those that nobody needs to be told of any more.
func (t *tx) endAlerts() error {
	now := micros(t.Now)
	for _, over := range []struct {
		which string
		args  []any
	}{
		{`at < ?`, []any{micros(t.Now.Add(-tellWithin))}},
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

// MarkTold notes that the owner was told of alerts, by one notice. ErrNoTurn: by somebody whose turn it was
// no longer, so that it may be told again.
func (s *Store) MarkTold(ctx context.Context, turn Turn, notice string, ids ...string) error {
	return s.eachAlert(ctx, turn, ids, func(t *tx, id string) error {
		_, err := t.Exec(`UPDATE alerts SET state = 'told', told_at = ?, told_as = ?
			WHERE id = ? AND state = 'waiting'`, micros(t.Now), notice, id)
		return err
	})
}

// HoldBack lets alerts wait until a time, because too much was told.
func (s *Store) HoldBack(ctx context.Context, turn Turn, until time.Time, ids ...string) error {
	return s.eachAlert(ctx, turn, ids, func(t *tx, id string) error {
		_, err := t.Exec(`UPDATE alerts SET next_at = ? WHERE id = ? AND state = 'waiting'`,
			micros(until), id)
		return err
	})
}

// MarkFailed notes that alerts could not be told. They are tried again at a time, or given up (MaxTries).
func (s *Store) MarkFailed(ctx context.Context, turn Turn, again time.Time, ids ...string) error {
	return s.eachAlert(ctx, turn, ids, func(t *tx, id string) error {
		_, err := t.Exec(`UPDATE alerts SET next_at = ?, attempts = attempts + 1,
				state = CASE WHEN attempts + 1 >= ? THEN 'failed' ELSE 'waiting' END
			WHERE id = ? AND state = 'waiting'`, micros(again), MaxTries, id)
		return err
	})
}

// eachAlert changes each of some alerts, in one transaction of the turn's holder.
func (s *Store) eachAlert(ctx context.Context, turn Turn, ids []string,
	f func(t *tx, id string) error) error {
	return s.tx(ctx, func(t *tx) error {
		if err := t.hasTurn(turn); err != nil {
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
