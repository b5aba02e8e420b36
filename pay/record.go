package pay

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// Detached is a context for recording how a call ended: it goes on when the call's own is over, for a
// short time. What cannot be recorded because another program holds the ledger, reconciliation finds.
func (*Engine) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := detachedWait
	if until, bounded := ctx.Deadline(); bounded {
		wait = min(max(time.Until(until), wait), recordWait)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), wait)
}

// finish records a verdict with the content that came, and makes the caller's answer of it.
// It has its own time: the call's own may just have ended, and that is when recording matters.
func (e *Engine) finish(ctx context.Context, p history.Payment, v verdict, answer *seller.Answer) (Result,
	error) {
	call := ctx
	ctx, step := steps.Begin(ctx, steps.Record)
	defer step.End(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWait)
	defer cancel()
	if answer != nil {
		defer answer.Release()
	}
	v.again = p.State == history.Unknown
	e.noteRefusal(p, v.code)
	outcome := v.outcome()
	outcome.ReleaseLease, outcome.ClearWaiter = true, v.code != "" || !v.served
	if v.keeps(answer, p) {
		content := contentOf(answer)
		outcome.Content = &content
	}
	saved, unstored, err := e.record(call, p, outcome, v.served)
	if err != nil { // submitted and its hold are on disk; reconciliation finds the rest
		e.Log.Error("record an outcome", "payment", p.ID, "err", err)
		e.inflight.noteStale(p.ID) // until the client has its answer
		if outcome.ClearWaiter {
			e.giveUp(call, p.ID)
		}
		p.State, p.Proof, p.Transaction = v.state, v.proof, cmp.Or(v.transaction, p.Transaction)
		saved = p
	}
	if err == nil && saved.State == history.Unknown && v.served {
		// content without a receipt: the chain may know already
		saved = e.AskChain(ctx, saved)
	}
	note(ctx, saved)
	if !v.served && mayBeStored(saved, outcome.Content) {
		if r, done, err := e.replay(ctx, saved); done && err == nil {
			return r, nil
		}
	}
	if v.code != "" {
		return Result{}, v.error(saved, answer, e.Now())
	}
	r := e.paid(ctx, saved, v, answer)
	if unstored != nil && r.ContentTruncated { // the rest would be lost, and the same call another purchase
		e.giveUp(ctx, p.ID)
		return Result{}, e.notStored(saved, unstored)
	}
	return r, nil
}

// mayBeStored reports whether, though this answer served nothing, the ledger may have what was bought:
// the same payment may have been served to another call. came is what of this answer was stored.
func mayBeStored(p history.Payment, came *history.Content) bool {
	if p.State == history.Settled {
		return true
	}
	givenOut := p.Delivered && p.IdempotencyKey == ""
	return !givenOut && (came == nil || !isOK(came.Status))
}

// record writes an outcome down. Where it cannot be, what was bought is kept in memory, and what became
// of the payment is tried alone: it needs less room. unstored is why there is no content in the ledger.
func (e *Engine) record(ctx context.Context, p history.Payment, o history.Outcome,
	served bool) (saved history.Payment, unstored, err error) {
	finish := func(o history.Outcome) (history.Payment, error) {
		ctx, cancel := e.Detached(ctx)
		defer cancel()
		return e.Store.Finish(ctx, p.ID, o)
	}
	saved, err = finish(o)
	if err == nil || o.Content == nil || !served {
		return saved, nil, err
	}
	unstored = err
	e.Log.Error("record what was bought", "payment", p.ID, "err", err)
	bare := o
	bare.Content = nil
	saved, err = finish(bare)
	o.ReleaseLease, o.ClearWaiter = false, false // somebody may work on it when the content is written
	if !e.pending.keep(p.ID, o) {
		e.Log.Error("too much was bought and not recorded to be kept in memory", "payment", p.ID)
	}
	return saved, unstored, err
}

// save writes down what is kept of a payment, if anything is.
func (e *Engine) save(ctx context.Context, p history.Payment) (history.Payment, error) {
	o, kept := e.pending.get(p.ID)
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
	e.pending.drop(p.ID)
	return saved, nil
}

// notStored is the error of a purchase that an answer cannot carry and the ledger could not take.
func (e *Engine) notStored(p history.Payment, cause error) error {
	err := x402.Errorf(x402.LedgerUnavailable, "the seller served what was paid for, and it could not be "+
		"stored: %s", x402.AsError(cause).Message)
	hint := "make room on the disk of the wallet's home, or make it writable, then make the very same " +
		"call again: it does not pay again"
	if _, kept := e.pending.get(p.ID); kept {
		hint += ", and gives what was bought, which this process keeps in memory until then"
	}
	err.Hint, err.Err, err.PaymentID, err.Spent = hint, cause, p.ID, p.Amount.String()
	return err.WithCommand(x402.Command("doctor"), "What was paid for could not be stored: please make room "+
		"on the disk of the wallet's home, or make it writable.")
}

// pendingWrites is what was bought and could not be written down, as when the disk is full: it is
// kept in memory until it can be, so that the same call gets it and pays nothing. With the process
// it is gone; then the same call brings the same signed bytes again.
type pendingWrites struct {
	mu       sync.Mutex
	outcomes map[string]history.Outcome // by payment
}

// maxPending bounds the content in it, in bytes: twice the largest that is stored.
const maxPending = 64 << 20

func (w *pendingWrites) keep(id string, o history.Outcome) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := len(o.Content.Body)
	for _, other := range w.outcomes {
		size += len(other.Content.Body)
	}
	if size > maxPending {
		return false
	}
	if w.outcomes == nil {
		w.outcomes = map[string]history.Outcome{}
	}
	w.outcomes[id] = o
	return true
}

func (w *pendingWrites) get(id string) (o history.Outcome, kept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, kept = w.outcomes[id]
	return o, kept
}

func (w *pendingWrites) drop(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.outcomes, id)
}

func (w *pendingWrites) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.outcomes))
}
