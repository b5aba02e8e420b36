package agent

import (
	"slices"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// tally is what this agent has signed, whatever became of it. It bounds what can be got out of the
// agent by who writes to the ledger's file: never more than the owner's windows allow, from one
// unlocking to the next.
type tally struct {
	mu    sync.Mutex
	items []item
	// payments that a person approved at a caller's client; the newest last
	approvals []string
}

// maxApprovals bounds the approvals that are remembered: a payment is signed in the moment after.
const maxApprovals = 256

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

func (t *tally) addApproval(payment string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.approvals = append(t.approvals[max(0, len(t.approvals)-maxApprovals+1):], payment)
}

// hasApproval is called with mu held.
func (t *tally) hasApproval(payment string) bool { return slices.Contains(t.approvals, payment) }

// facts is what the tally alone knows, with the ledger's history of payees and failures. An agent
// runs for 8 hours at most, so all of it counts for the session, except what was signed before the
// owner began that session (begun; zero: a payment began it). It is asked with mu held.
func (t *tally) facts(ledger budget.Facts, q budget.Query, now, begun time.Time) budget.Facts {
	day := budget.DayOf(now)
	hour := budget.RateLimit{Per: budget.BusyWindow, NotBefore: ledger.LastUnfreeze}
	facts := ledger
	facts.Now, facts.Behind = now, 0
	facts.LastMinute, facts.LastHour = t.count(now.Add(-budget.RateWindow)), t.count(hour.Since(now))
	facts.Used = budget.Usage{
		Session: t.used(begun, ""), Day: t.used(day, ""), Month: t.used(budget.MonthOf(now), ""),
		HostDay: map[string]budget.Use{},
	}
	for _, entry := range q.HostEntries {
		facts.Used.HostDay[entry] = t.used(day, entry)
	}
	facts.RateSince = time.Time{}
	if nth := max(q.Rate, 1); facts.LastMinute >= nth {
		facts.RateSince = t.items[len(t.items)-nth].at // they are in the order of their times
	}
	return facts
}

// used is what was signed since a time, for a host of the owner's entry; "": for any.
func (t *tally) used(since time.Time, entry string) (use budget.Use) {
	for _, i := range t.items {
		if !i.at.Before(since) && (entry == "" || onHost(entry, i.host)) {
			use.Held = use.Held.Add(i.price)
		}
	}
	return use
}

// count is how much was signed after a time.
func (t *tally) count(since time.Time) (n int) {
	for _, i := range t.items {
		if i.at.After(since) {
			n++
		}
	}
	return n
}
