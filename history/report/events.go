package report

import (
	"context"
	"encoding/json"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
)

// Event is a row of the audit chain.
type Event struct {
	At     time.Time       `json:"at"`
	Event  string          `json:"event"`
	Detail json.RawMessage `json:"detail"`
}

// Events returns what the audit chain has of a payment's states and approvals, oldest first; of no payment
// (""), all that is about none. That it was signed is the event "submitted" where it could leave then.
func Events(ctx context.Context, s *history.Store, id string) (list []Event, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		var number int64
		if id != "" {
			number, err = sqldb.ScanNumber(t.Row(`SELECT seq FROM payments WHERE id = ?`, id))
			if err != nil {
				return sqldb.Otherwise(err, nil)
			}
		}
		return t.Each(func(row sqldb.Row) error {
			var at int64
			var event, detail string
			if err := row.Scan(&at, &event, &detail); err != nil {
				return err
			}
			if event == audit.SignedEvent {
				event = sent(detail)
			}
			if event == "" {
				return nil
			}
			list = append(list, Event{sqldb.FromMicros(at), event, json.RawMessage(detail)})
			return nil
		}, `SELECT at, event, detail FROM audit WHERE payment = ?
			AND event NOT IN ('expired', 'charged', 'delivered', 'keyed', 'content') ORDER BY seq`, number)
	})
	return list, err
}

// sent is the event that a signature is for people; "": it could not leave yet.
func sent(detail string) string {
	if g, err := seals.Read[seals.Signature](detail); err == nil && g.Submitted {
		return audit.SubmittedEvent
	}
	return ""
}

// Ahead is the latest time in the ledger, where that is so far ahead of the clock that somebody has to look
// (Store.Redate); else zero.
func Ahead(ctx context.Context, s *history.Store) (latest time.Time, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		var made, settled int64
		err := t.Row(`SELECT coalesce((SELECT max(created_at) FROM payments), 0),
			coalesce((SELECT max(updated_at) FROM payments WHERE state = 'settled'), 0)`).Scan(&made, &settled)
		if at := sqldb.FromMicros(max(made, settled)); at.Sub(t.Now) > budget.ClockTolerance {
			latest = at
		}
		return err
	})
	return latest, err
}
