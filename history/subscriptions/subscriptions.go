// Package subscriptions is what the ledger has of the owner's subscriptions beside their payments: where
// the newest run of each stands, and which ones agents proposed.
//
// What must stay true: both are hints (rows of the table meta). That a slot is bought once, and for how
// much, is kept by the payments' keys and by what is sealed. So whoever writes to them makes a run wait or
// come again, and nothing be paid.
package subscriptions

import (
	"context"
	"encoding/json"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/internal/notes"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// State is where the newest run of a subscription stands.
type State string

// running → done | failed; waiting: for a person, or for the next try.
const (
	Running State = "running"
	Waiting State = "waiting"
	Done    State = "done"
	Failed  State = "failed"
)

// Run is the newest run of a subscription.
type Run struct {
	Slot     time.Time `json:"slot"`
	State    State     `json:"state"`
	At       time.Time `json:"at"`            // when it was noted
	Attempts int       `json:"attempts"`      // that failed
	Next     time.Time `json:"next,omitzero"` // not to be tried before
	Payment  string    `json:"payment,omitempty"`
	Approval string    `json:"approval,omitempty"` // that it waits for
	Code     x402.Code `json:"code,omitempty"`
	Why      string    `json:"why,omitempty"`
	Free     bool      `json:"free,omitempty"` // it was served without payment
}

// isOver reports whether nothing more is done about its slot.
func (r Run) isOver() bool { return r.State == Done || r.State == Failed }

// LastDone is the newest slot about which nothing more is to be done; zero: none.
func (r Run) LastDone() time.Time {
	if r.isOver() {
		return r.Slot
	}
	return time.Time{}
}

const runKey = "subscription "

// Runs are the newest runs, by budget.Subscription.ID.
func Runs(ctx context.Context, s *history.Store) (map[string]Run, error) {
	runs := map[string]Run{}
	err := s.View(ctx, func(t *sqldb.Tx) error {
		return notes.Each(t, runKey, func(id, text string) error {
			var r Run
			if json.Unmarshal([]byte(text), &r) == nil { // what is no JSON of ours says nothing
				runs[id] = r
			}
			return nil
		})
	})
	return runs, err
}

// NoteRun notes where a run of a subscription stands, unless a later slot or the end of this one is noted
// already. alert says what the owner is told of it, once for each window; nil: nothing.
func NoteRun(ctx context.Context, s *history.Store, w alerts.Writer, sub budget.Subscription, r Run,
	alert *Alert) error {
	return s.Write(ctx, func(t *sqldb.Tx) error {
		r.At, r.Why = t.Now.Truncate(time.Microsecond), x402.BriefTo(r.Why, maxWhy)
		was, err := run(t, sub.ID())
		if err != nil {
			return err
		}
		isLate := was.Slot.After(r.Slot) || (was.Slot.Equal(r.Slot) && was.State == Done)
		if isLate {
			return nil
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = t.Exec(`INSERT INTO meta VALUES (?, ?)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, runKey+sub.ID(), string(text))
		if err != nil || alert == nil {
			return err
		}
		return w.Write(t, alerts.Subscription, sub.ID(), alert.Window, alerts.Detail{Agent: sub.Agent,
			Host: alert.Host, Why: alert.Why, Expires: alert.Next})
	})
}

// maxWhy bounds what a run keeps of a text, in characters.
const maxWhy = 1000

// Alert is what the owner is told of a run.
type Alert struct {
	Window string // one alert for each
	Host   string
	Why    string
	Next   time.Time // when it is tried again; zero: not in this slot
}

// run is the newest run of a subscription, or the zero Run.
func run(t *sqldb.Tx, id string) (r Run, err error) {
	text, err := sqldb.Find(t, sqldb.ScanText, `SELECT value FROM meta WHERE key = ?`, runKey+id)
	if err == nil && text != nil {
		_ = json.Unmarshal([]byte(*text), &r)
	}
	return r, err
}

// Spent is what a subscription's payments took, by its ID: what is settled, and what is open.
func Spent(ctx context.Context, s *history.Store, id string) (use budget.Use, err error) {
	where, args := history.OfSubscription(id)
	err = s.View(ctx, func(t *sqldb.Tx) error {
		return t.Row(`SELECT coalesce(sum(CASE WHEN state = 'settled' THEN usd - returned END), 0),
			coalesce(sum(CASE WHEN state <> 'settled' THEN usd - returned END), 0)
			FROM payments`+where, args...).Scan(&use.Spent, &use.Held)
	})
	return use, err
}

// Payments are a subscription's newest payments that did not fail, newest first.
func Payments(ctx context.Context, s *history.Store, id string, limit int) (list []history.Payment,
	err error) {
	where, args := history.OfSubscription(id)
	err = s.View(ctx, func(t *sqldb.Tx) error {
		list, err = sqldb.Collect(t, history.ScanPayment,
			history.SelectPayment+where+` ORDER BY created_at DESC, seq DESC LIMIT ?`, append(args, limit)...)
		return err
	})
	return list, err
}
