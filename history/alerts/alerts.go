// Package alerts is what the owner is told of: it writes alerts beside what they are about, in the ledger,
// and keeps who tells them from telling one twice.
//
// What must stay true: an alert is written in the transaction of its cause, one for each, and decides
// nothing.
//
// The files: alerts.go (what an alert is), write.go (when there is one), tell.go (what waits to be told).
package alerts

import (
	"context"
	"encoding/json"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Kind is what an alert is about.
type Kind string

// The kinds.
const (
	Approval     Kind = "approval"     // a question waits for the owner
	Freeze       Kind = "freeze"       // payments were stopped, and not by the owner
	Budget       Kind = "budget"       // most of a budget is used
	Payment      Kind = "payment"      // what became of one is not known, long after its end
	Ledger       Kind = "ledger"       // it is damaged, or behind its checkpoint
	Funds        Kind = "funds"        // little is left to pay from
	Subscription Kind = "subscription" // one could not be bought
	Proposal     Kind = "proposal"     // an agent would like one
	Home         Kind = "home"         // others could enter the wallet's home
)

// State is where an alert stands.
type State string

// waiting → told | over | failed.
const (
	Waiting State = "waiting"
	Told    State = "told"
	Over    State = "over"   // what it is about was settled before it was told, or is old
	Failed  State = "failed" // no way to tell it worked
)

// Alert is something that the owner is told of.
type Alert struct {
	ID       string // "alr_" and 32 hex digits
	Kind     Kind
	Subject  string
	Window   string // which of the subject's, where there are several
	At       time.Time
	Detail   Detail
	State    State
	Told     time.Time // zero: it was not
	Attempts int       // that failed
	Next     time.Time // not to be told before; zero: at once
}

// Detail is what is said of it, by its kind. Agents and strangers wrote some of it.
type Detail struct {
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
	// of funds: which they are, as history.LowFunds has it, and what is left of them
	Source string        `json:"source,omitempty"`
	Left   money.Dollars `json:"left,omitzero"`
	Symbol string        `json:"symbol,omitempty"`
	// what renewing them would let the agent spend, as the command that is told proposes it; 0: nothing
	// renews them
	Renew money.Dollars `json:"renew,omitzero"`
}

// List returns the newest alerts, newest first.
func List(ctx context.Context, s *history.Store, limit int) (list []Alert, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		list, err = sqldb.Collect(t, scan, selectAlert+` ORDER BY at DESC, id DESC LIMIT ?`, limit)
		return err
	})
	return list, err
}

const selectAlert = `SELECT id, kind, subject, win, at, detail, state, coalesce(told_at, 0), attempts, next_at
	FROM alerts`

func scan(row sqldb.Row) (a Alert, err error) {
	var at, told, next int64
	var detail string
	err = row.Scan(&a.ID, &a.Kind, &a.Subject, &a.Window, &at, &detail, &a.State, &told, &a.Attempts, &next)
	if err != nil {
		return a, err
	}
	a.At, a.Told, a.Next = sqldb.FromMicros(at), sqldb.FromMicros(told), sqldb.FromMicros(next)
	// what is no JSON of ours says nothing; the alert is told all the same
	_ = json.Unmarshal([]byte(detail), &a.Detail)
	return a, nil
}
