package pay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// unsaved is what was bought and could not be written down, as when the disk is full: it is kept in
// memory until it can be, so that the same call gets it and pays nothing. With the process it is
// gone; then the same call brings the same signed bytes again.
type unsaved struct {
	mu       sync.Mutex
	outcomes map[string]history.Outcome // by payment
}

// maxUnsaved bounds the content in it, in bytes: twice the largest that is stored.
const maxUnsaved = 64 << 20

func (u *unsaved) keep(id string, o history.Outcome) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	size := len(o.Content.Body)
	for _, other := range u.outcomes {
		size += len(other.Content.Body)
	}
	if size > maxUnsaved {
		return false
	}
	if u.outcomes == nil {
		u.outcomes = map[string]history.Outcome{}
	}
	u.outcomes[id] = o
	return true
}

func (u *unsaved) get(id string) (o history.Outcome, kept bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	o, kept = u.outcomes[id]
	return o, kept
}

func (u *unsaved) drop(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.outcomes, id)
}

func (u *unsaved) ids() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.outcomes))
}

// record writes an outcome down. Where it cannot be, what was bought is kept in memory, and what
// became of the payment is tried alone: it needs less room. unstored is why there is no content in
// the ledger.
func (e *Engine) record(ctx context.Context, p history.Payment, o history.Outcome,
	served bool) (saved history.Payment, unstored, err error) {
	saved, err = e.Store.Finish(ctx, p.ID, o)
	if err == nil || o.Content == nil || !served {
		return saved, nil, err
	}
	unstored = err
	e.Log.Error("record what was bought", "payment", p.ID, "err", err)
	bare := o
	bare.Content = nil
	if saved, err = e.Store.Finish(ctx, p.ID, bare); err == nil {
		// somebody else may work on it when the content is written
		o.ReleaseLease, o.ClearWaiter = false, false
	}
	if !e.unsaved.keep(p.ID, o) {
		e.Log.Error("too much was bought and not recorded to be kept in memory", "payment", p.ID)
	}
	return saved, unstored, err
}

// save writes down what is kept of a payment, if anything is.
func (e *Engine) save(ctx context.Context, p history.Payment) (history.Payment, error) {
	o, kept := e.unsaved.get(p.ID)
	if !kept {
		return p, nil
	}
	saved, err := e.Store.Finish(ctx, p.ID, o)
	if errors.Is(err, history.ErrTransition) { // the chain said meanwhile that nothing was paid
		saved, err = p, nil
	}
	if err != nil {
		return p, e.notStored(p, err)
	}
	e.unsaved.drop(p.ID)
	return saved, nil
}

// notStored is the error of a purchase that an answer cannot carry and the ledger could not take.
func (e *Engine) notStored(p history.Payment, cause error) error {
	err := x402.Errorf(x402.LedgerUnavailable, "the seller served what was paid for, and it could not be "+
		"stored: %s", x402.AsError(cause).Message)
	hint := "make room on the disk of the wallet's home, or make it writable, then make the very same " +
		"call again: it does not pay again"
	if _, kept := e.unsaved.get(p.ID); kept {
		hint += ", and gives what was bought, which this process keeps in memory until then"
	}
	err.Hint, err.Err, err.PaymentID, err.Spent = hint, cause, p.ID, p.Amount.String()
	return err
}
