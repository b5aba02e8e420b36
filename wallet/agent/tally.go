package agent

import (
	"slices"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// tally is what this agent has signed, whatever became of it. It bounds what can be got out of the
// agent by who writes to the ledger's file: never more than the owner's windows allow, from one
// unlocking to the next.
type tally struct {
	mu    sync.Mutex
	items []item
	yes   []string // payments that a caller's client said yes to; the newest last
}

// mostHeard bounds what is remembered of clients: a payment is signed in the moment after.
const mostHeard = 256

type item struct {
	id    string
	at    time.Time
	host  string
	price money.Dollars
}

func (t *tally) has(id string) bool {
	return slices.ContainsFunc(t.items, func(i item) bool { return i.id == id })
}

func (t *tally) add(i item) { t.items = append(t.items, i) }

func (t *tally) hear(payment string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.yes = append(t.yes[max(0, len(t.yes)-mostHeard+1):], payment)
}

// heard is asked with mu held.
func (t *tally) heard(payment string) bool { return slices.Contains(t.yes, payment) }

// own answers for the tally alone, with the ledger's memory of payees. An agent lives 8 hours at
// most, so all of it counts for the session, except what was signed before the owner began that
// session.
type own struct {
	*tally
	*history.Tx
	begun time.Time // zero: a payment began the session
}

// Used implements budget.Ledger.
func (o *own) Used(w budget.Window) (use budget.Use, _ error) {
	for _, i := range o.items {
		if onHost(w.Host, i.host) && !i.at.Before(w.Since) && (w.Session == "" || !i.at.Before(o.begun)) {
			use.Held = use.Held.Add(i.price)
		}
	}
	return use, nil
}

// Count implements budget.Ledger.
func (o *own) Count(since time.Time) (n int, _ error) {
	for _, i := range o.items {
		if i.at.After(since) {
			n++
		}
	}
	return n, nil
}

// Oldest implements budget.Ledger.
func (o *own) Oldest(since time.Time, skip int) (oldest time.Time, _ error) {
	for _, i := range o.items { // in the order of their times
		if i.at.After(since) {
			if skip == 0 {
				return i.at, nil
			}
			skip--
		}
	}
	return oldest, nil
}

var _ budget.Ledger = &own{}
