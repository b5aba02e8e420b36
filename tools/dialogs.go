package tools

import (
	"sync"
	"time"

	"x402-wallet/pay"
	"x402-wallet/x402"
)

// maxUnanswered is how often a client's person is shown a dialog about a similar amount within an hour, if
// they close it each time: then only the command line asks.
const maxUnanswered = 2

// dialogs lets each client show one question about a payment at a time: a hundred calls are
// no hundred dialogs, of which the last is accepted to get rid of them.
type dialogs struct {
	mu   sync.Mutex
	open map[any]dialog // by whom it is shown to (inFront)
	// when dialogs that lead to a page were closed: what a client says of those is not in the ledger
	closed map[any][]time.Time
}

// dialog is a question in front of a person.
type dialog struct {
	id    string    // the approval's
	until time.Time // when it is over without an answer
}

// begin reports whether a question may be shown, and then it is their one until it ends.
func (d *dialogs) begin(who any, id string, until time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if shown, open := d.open[who]; open && time.Now().Before(shown.until) {
		return false
	}
	if d.open == nil {
		d.open = map[any]dialog{}
	}
	for s, shown := range d.open { // of sessions that are gone
		if !time.Now().Before(shown.until) {
			delete(d.open, s)
		}
	}
	d.open[who] = dialog{id: id, until: until}
	return true
}

// end is called with the answer, or when there will be none.
func (d *dialogs) end(who any, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[who].id == id {
		delete(d.open, who)
	}
}

// tired is for how long whoever closed maxUnanswered dialogs that lead to a page is shown no more of them.
const tired = time.Hour

// shut notes that a dialog was closed that leads to a page.
func (d *dialogs) shut(who any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed == nil {
		d.closed = map[any][]time.Time{}
	}
	for w, times := range d.closed { // of sessions that are gone
		if time.Since(times[len(times)-1]) >= tired {
			delete(d.closed, w)
		}
	}
	d.closed[who] = append(d.closed[who], time.Now())
}

func (d *dialogs) heeded(who any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.closed, who)
}

// tires reports whether as many were closed as may be shown.
func (d *dialogs) tires(who any) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	times := d.closed[who]
	return len(times) >= maxUnanswered && time.Since(times[len(times)-1]) < tired
}

// closedBefore reports whether the person closed as many dialogs about a similar amount as may be shown.
func closedBefore(refusal error) bool {
	n, _ := x402.AsError(refusal).Details[pay.DetailUnanswered].(int)
	return n >= maxUnanswered
}

// waits is the refusal of a payment about which nobody is asked now, because of another question.
func waits(refusal error) error {
	e := x402.AsError(refusal)
	command, _ := e.Details["command"].(string)
	e.Hint = "another payment's question is in front of the person now, and only one is asked at a time; " +
		"this payment too has to be approved, by: " + command + "; or make the very same call again later"
	return e
}
