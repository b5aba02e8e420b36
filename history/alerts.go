package history

import (
	"context"
	"encoding/json"
	"time"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// AlertKind is what an alert is about.
type AlertKind string

// The kinds.
const (
	AlertApproval     AlertKind = "approval"     // a question waits for the owner
	AlertFreeze       AlertKind = "freeze"       // payments were stopped, and not by the owner
	AlertBudget       AlertKind = "budget"       // most of a budget is used
	AlertPayment      AlertKind = "payment"      // what became of one is not known, long after its end
	AlertLedger       AlertKind = "ledger"       // it is damaged, or behind its checkpoint
	AlertFunds        AlertKind = "funds"        // little is left to pay from
	AlertSubscription AlertKind = "subscription" // one could not be bought
	AlertProposal     AlertKind = "proposal"     // an agent would like one
	AlertEpoch        AlertKind = "epoch"        // PostgreSQL's: another server has the ledger now
)

// AlertState is where an alert stands.
type AlertState string

// waiting → told | over | failed.
const (
	AlertWaiting AlertState = "waiting"
	AlertTold    AlertState = "told"
	AlertOver    AlertState = "over"   // what it is about was settled before it was told, or is old
	AlertFailed  AlertState = "failed" // no way to tell it worked
)

// Alert is something that the owner is told of.
type Alert struct {
	ID       string // "alr_" and 32 hex digits
	Kind     AlertKind
	Subject  string
	Window   string // which of the subject's, where there are several
	At       time.Time
	Detail   AlertDetail
	State    AlertState
	Told     time.Time // zero: it was not
	Attempts int       // that failed
	Next     time.Time // not to be told before; zero: at once
}

// AlertDetail is what is said of it, by its kind. Agents and strangers wrote some of it.
type AlertDetail struct {
	Price   money.Dollars `json:"price,omitzero"`
	Host    string        `json:"host,omitempty"`
	Agent   string        `json:"agent,omitempty"`
	Why     string        `json:"why,omitempty"`
	By      string        `json:"by,omitempty"` // who stopped payments
	SignIn  bool          `json:"signIn,omitempty"`
	Expires time.Time     `json:"expires,omitzero"` // the question, or what was signed
	Network string        `json:"network,omitempty"`
	Account string        `json:"account,omitempty"`
	// of a budget: how much is used, and its limit
	Used  money.Dollars `json:"used,omitzero"`
	Limit money.Dollars `json:"limit,omitzero"`
	// of funds: which they are, as LowFunds has it, and what is left of them
	Source string        `json:"source,omitempty"`
	Left   money.Dollars `json:"left,omitzero"`
	Symbol string        `json:"symbol,omitempty"`
	// what renewing them would let the agent spend, as the command that is told proposes it; 0: nothing
	// renews them
	Renew money.Dollars `json:"renew,omitzero"`
}

// Bounds of the table: hints that are older are of no use, and no agent fills the disk with them.
const (
	keepAlerts = 30 * 24 * time.Hour
	maxAlerts  = 10_000
)

// alert writes an alert, unless its cause has one already.
func (t *tx) alert(kind AlertKind, subject, window string, d AlertDetail) error {
	n, err := t.Exec(`INSERT INTO alerts (id, kind, subject, win, at, detail, state, attempts, next_at)
		VALUES (?, ?, ?, ?, ?, ?, 'waiting', 0, 0) ON CONFLICT (kind, subject, win) DO NOTHING`,
		newTimedID("alr_", t.Now), string(kind), subject, window, micros(t.Now), toJSON(d))
	if err != nil || n == 0 {
		return err
	}
	t.hasAlerted = true
	_, err = t.Exec(`DELETE FROM alerts WHERE at < ?`, micros(t.Now.Add(-keepAlerts)))
	if err == nil {
		_, err = t.Exec(`DELETE FROM alerts WHERE (at, id) <
			(SELECT at, id FROM alerts ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?)`, maxAlerts-1)
	}
	return err
}

// Alerts are the newest, newest first.
func (s *Store) Alerts(ctx context.Context, limit int) ([]Alert, error) {
	return read(ctx, s, func(t *tx) ([]Alert, error) {
		return sqldb.Collect(t.Tx, scanAlert, selectAlert+` ORDER BY at DESC, id DESC LIMIT ?`, limit)
	})
}

const selectAlert = `SELECT id, kind, subject, win, at, detail, state, coalesce(told_at, 0), attempts, next_at
	FROM alerts`

func scanAlert(row sqldb.Row) (a Alert, err error) {
	var at, told, next int64
	var detail string
	err = row.Scan(&a.ID, &a.Kind, &a.Subject, &a.Window, &at, &detail, &a.State, &told, &a.Attempts, &next)
	if err != nil {
		return a, err
	}
	a.At, a.Told, a.Next = fromMicros(at), fromMicros(told), fromMicros(next)
	// what is no JSON of ours says nothing; the alert is told all the same
	_ = json.Unmarshal([]byte(detail), &a.Detail)
	return a, nil
}
