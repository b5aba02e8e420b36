//go:build crash && linux

package crash

import (
	"context"
	"fmt"

	"x402-wallet/history"
)

// ledger holds the wallet's ledger against the chains' books: it is whole, every settlement is in
// it, it claims none that was not, and whatever an answer said is there.
func (r *run) ledger() {
	payments, err := r.payments()
	if err != nil {
		r.violation("the ledger: %v", err)
		return
	}
	if r.missing(payments) != "" { // what the last process left open is looked up by the next one
		if p, err := r.start(r.bin, false, nil, "reconcile", "--json"); err == nil {
			text, err := p.output()
			r.note("reconcile: %v %s", err, text)
		}
		if payments, err = r.payments(); err != nil {
			r.violation("the ledger: %v", err)
			return
		}
	}
	if tx := r.missing(payments); tx != "" {
		r.violation("the transfer %s was settled, but no row of the ledger has it", tx)
	}
	r.nothingMadeUp(payments)
	r.nothingLost(payments)
}

// payments reads the ledger, and verifies it.
func (r *run) payments() (list []history.Payment, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	store, err := history.Open(ctx, r.home, history.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if _, err := store.Verify(ctx, history.Head{}); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	list, _, _, err = store.List(ctx, history.Filter{Limit: 1000})
	return list, err
}

// missing is a settled transfer that the ledger does not know; "" when there is none.
func (r *run) missing(payments []history.Payment) string {
	known := map[string]bool{}
	for _, p := range payments {
		if p.State == history.Settled {
			known[p.Transaction] = true
		}
	}
	for _, s := range r.Settlements() {
		if !known[s.Transaction] {
			return s.Transaction
		}
	}
	return ""
}

// nothingMadeUp: every row that is settled is a transfer on its chain, of the same amount; but for vouchers,
// which move nothing (keptBook).
func (r *run) nothingMadeUp(payments []history.Payment) {
	amounts := map[string]string{}
	for _, s := range r.Settlements() {
		amounts[s.Transaction] = fmt.Sprint(s.Amount)
	}
	for _, p := range payments {
		if p.State == history.Settled && !p.Prepaid() && amounts[p.Transaction] != p.Amount.String() {
			r.violation("the ledger has %s settled for %s, the chain has %q for it", p.ID, p.Amount,
				amounts[p.Transaction])
		}
	}
}

// nothingLost: what an answer said that the client has read is in the ledger.
func (r *run) nothingLost(payments []history.Payment) {
	states := map[string]history.State{}
	for _, p := range payments {
		states[p.ID] = p.State
	}
	for _, a := range r.answers {
		switch state, known := states[a.PaymentID]; {
		case a.PaymentID == "":
		case !known:
			r.violation("the answer %q is of a payment that is not in the ledger", a)
		case a.paid() && state != history.Settled:
			r.violation("the answer %q is of a payment that is %s in the ledger", a, state)
		}
	}
}
