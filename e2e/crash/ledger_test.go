//go:build crash && linux

package crash

import (
	"context"
	"fmt"

	"x402-wallet/history"
	"x402-wallet/history/verify"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
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
	store, err := r.open(ctx, history.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if _, err := verify.Ledger(ctx, store, history.Head{}); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	list, err = store.Recent(ctx, 1000)
	return list, err
}

// missing is a settled transfer, or a float, that the ledger does not know; "" when there is none. Of one
// that is known late a row holds all that was signed for.
func (r *run) missing(payments []history.Payment) string {
	known, late := map[string]bool{}, 0
	for _, p := range payments {
		switch {
		case p.State == history.Settled:
			known[p.Transaction] = true
		case r.isLate(p.State):
			late++
		}
	}
	for _, s := range append(r.Settlements(), r.Pulls()...) {
		if known[s.Transaction] {
			continue
		}
		if late == 0 {
			return s.Transaction
		}
		late--
	}
	return ""
}

// isLate reports whether a payment in this state may be settled, and is held.
func (r *run) isLate(state history.State) bool {
	return r.scenario.late && (state == history.Submitted || state == history.Unknown)
}

// nothingMadeUp: every row that is settled is a transfer on its chain, of the same amount; at upto of that or
// less. Sign-ins and vouchers (keptBook) are none, and a float is one out of the owner's account.
func (r *run) nothingMadeUp(payments []history.Payment) {
	settlements, pulls := amountsOf(r.Settlements()), amountsOf(r.Pulls())
	for _, p := range payments {
		amounts := settlements
		if p.IsPull() {
			amounts = pulls
		}
		if p.State != history.Settled || p.IsSignIn() || p.Prepaid() {
			continue
		}
		moved, known := amounts[p.Transaction]
		less := p.Scheme == x402.Upto && p.Charged == nil && moved.Cmp(p.Amount) < 0
		if !known || (moved != p.Paid() && !less) {
			r.violation("the ledger has %s settled for %s, the chain has %s in %q", p.ID, p.Paid(), moved,
				p.Transaction)
		}
	}
}

func amountsOf(moved []sandbox.Settlement) map[string]money.Amount {
	amounts := map[string]money.Amount{}
	for _, s := range moved {
		amounts[s.Transaction] = money.NewAmount(s.Amount)
	}
	return amounts
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
		case a.paid() && state != history.Settled && !r.isLate(state):
			r.violation("the answer %q is of a payment that is %s in the ledger", a, state)
		}
	}
}
