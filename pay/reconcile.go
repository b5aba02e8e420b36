package pay

import (
	"context"
	"errors"
	"time"

	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/x402"
)

// Bounds of reconciliation, so that ten thousand open payments block nobody.
const (
	reconcileBatch = 200                // are read at a time
	claimsFor      = 7 * 24 * time.Hour // how far back claims are looked up
)

// Report is what a reconciliation found.
type Report struct {
	Checked int `json:"checked"`
	Settled int `json:"settled"`
	Failed  int `json:"failed"`
	Open    int `json:"open"`
}

// Reconcile asks the chain about every payment that is not finished and that nobody works on, and
// about claims. It releases only what is proven to have expired; a node that cannot be reached
// releases nothing, and nobody is asked under rules that are not sealed.
func (e *Engine) Reconcile(ctx context.Context) (report Report, err error) {
	for _, id := range e.pending.ids() {
		if _, err := e.save(ctx, history.Payment{ID: id}); err != nil {
			e.Log.Warn("record what was bought", "payment", id, "err", err)
		}
	}
	for _, id := range e.inflight.idleStale() {
		e.correct(ctx, id)
	}
	if err := e.Guard.CheckConfig(ctx); err != nil {
		return report, err
	}
	if e.Hooks != nil {
		defer e.Hooks.Wake()
	}
	since := e.Now().Add(-claimsFor)
	for _, next := range []func(after string) ([]history.Payment, error){
		func(after string) ([]history.Payment, error) {
			return e.Store.Unfinished(ctx, after, reconcileBatch)
		},
		func(after string) ([]history.Payment, error) {
			return e.Store.Claimed(ctx, since, after, reconcileBatch)
		},
	} {
		for after, more := "", true; more; {
			list, err := next(after)
			if err != nil {
				return report, err
			}
			if after, err = e.lookUp(ctx, list, &report); err != nil {
				return report, err
			}
			more = len(list) == reconcileBatch
		}
	}
	return report, nil
}

// reconcileFor looks unfinished payments up before one is refused for what they hold: not longer
// than a caller would wait, and once for all callers. It goes on where the last one stopped, so
// that those which stay open hide no others. It reports whether money came free.
func (e *Engine) reconcileFor(ctx context.Context) bool {
	if !e.lookingUp.TryLock() {
		return false
	}
	defer e.lookingUp.Unlock()
	ctx, cancel := context.WithTimeout(ctx, fundsWait)
	defer cancel()
	var report Report
	open, err := e.Store.Unfinished(ctx, e.lookedUp, reconcileBatch)
	if err != nil {
		return false
	}
	e.lookedUp, err = e.lookUp(ctx, open, &report)
	if err == nil && len(open) < reconcileBatch {
		e.lookedUp = ""
	}
	return report.Failed > 0
}

// lookUp asks about each of a list, and names the last one that it asked about.
func (e *Engine) lookUp(ctx context.Context, list []history.Payment, report *Report) (last string,
	err error) {
	for _, p := range list {
		if ctx.Err() != nil {
			return last, ctx.Err()
		}
		last = p.ID
		if p.State.Unfinished() && e.leased(p) {
			continue
		}
		report.Checked++
		switch e.reconcileOne(ctx, p).State {
		case history.Settled:
			report.Settled++
		case history.Failed:
			report.Failed++
		default:
			report.Open++
		}
	}
	return last, nil
}

func (e *Engine) reconcileOne(ctx context.Context, p history.Payment) history.Payment {
	if p.State == history.Reserved {
		var err error
		id := p.ID
		if p, err = e.releaseAbandoned(ctx, p); err != nil {
			e.Log.Error("release an abandoned hold", "payment", id, "err", err)
			return p
		}
	}
	if p.State == history.Reserved || p.State == history.Failed {
		return p
	}
	if p.IsSignIn() {
		const note = "its process ended: whether the seller got it is not known"
		return e.endSignIn(ctx, p, history.Outcome{Note: note})
	}
	return e.AskChain(ctx, p)
}

// releaseAbandoned releases a hold whose process ended before anything was signed. As it was read
// before it may have been sent since, so it is read again, and once more after nobody else can do
// anything with it.
func (e *Engine) releaseAbandoned(ctx context.Context, p history.Payment) (history.Payment, error) {
	fresh, err := e.Store.Payment(ctx, p.ID)
	if err != nil || fresh.State != history.Reserved || e.leased(fresh) {
		return fresh, err
	}
	fresh, mine, err := e.acquireLease(ctx, nil, fresh)
	if err != nil || !mine {
		return p, err
	}
	defer e.inflight.end(p.ID, false)
	if fresh.State != history.Reserved {
		e.giveUp(ctx, p.ID)
		return fresh, nil
	}
	err = e.Store.Release(ctx, p.ID, "its process ended before anything was sent")
	if err == nil {
		fresh.State = history.Failed
	}
	return fresh, err
}

// AskChain asks the chain what became of a payment and records an answer that proves something:
//
//	the chain says   a payment that is      becomes
//	settled          submitted, unknown     settled (chain)
//	settled          settled (claimed)      settled (chain)
//	expired          submitted, unknown     failed: released
//	expired          settled (claimed)      failed, falseReceipt: released once, the seller flagged
//	open, or error   anything               what it was
//
// What settled for less than was signed for (upto) frees the rest with that, and is open until it may: as
// long as it could settle otherwise, all of it counts.
//
// "Expired" needs our own clocks too (isOver): a node that lies about the time releases nothing
// that is alive.
//
// Whoever chooses the node chooses the evidence: under rules that are not sealed nobody is asked.
func (e *Engine) AskChain(ctx context.Context, p history.Payment) history.Payment {
	reader, ok := e.statusReader(p.Scheme, p.Network)
	if !ok || p.Evidence == (x402.Evidence{}) {
		return p
	}
	if err := e.Guard.CheckConfig(ctx); err != nil {
		e.Log.Warn("ask the chain about a payment", "payment", p.ID, "err", err)
		return p
	}
	if p.ByVoucher() && p.State == history.Settled {
		return p // thousands of vouchers come to one claim, of which the newest tells
	}
	// a node that never answers leaves time for the seller
	asking, cancel := context.WithTimeout(ctx, e.Policy.Deadline/3)
	asking, step := steps.Begin(asking, steps.Chain)
	status, err := reader.Status(asking, p.Evidence)
	cancel()
	step.End(err)
	if err != nil {
		e.Log.Warn("ask the chain about a payment", "payment", p.ID, "err", err)
		status.State = x402.Open
	}
	return e.learn(ctx, p, status)
}

// learn records what the chain says of a payment, if that proves something.
func (e *Engine) learn(ctx context.Context, p history.Payment, status x402.Status) history.Payment {
	if status.State == x402.Expired && !e.isOver(p) {
		if !e.isSkew(p) {
			e.Log.Warn("the node says that a payment has expired, which by this machine's clock it has not",
				"payment", p.ID, "expiresAt", p.Evidence.ExpiresAt)
		}
		status.State = x402.Open
	}
	if status.State == x402.Expired && p.ByVoucher() && !e.isEmptied(ctx, p, status) {
		status.State = x402.Open
	}
	isLess := status.State == x402.Settled && status.Amount != nil && status.Amount.Cmp(p.Amount) < 0
	if isLess && !e.isOver(p) {
		status.State = x402.Open
	}
	if status.State == x402.Open {
		if now, err := e.Store.Payment(ctx, p.ID); err == nil {
			// somebody else may have had an answer meanwhile
			p = now
		}
		e.alertOverdue(ctx, p)
		return p
	}
	var saved history.Payment
	var err error
	switch {
	case status.State == x402.Expired:
		saved, err = e.Guard.Expire(ctx, p, status)
	case isLess:
		saved, err = e.Guard.Charge(ctx, p, status)
	default:
		saved, err = e.Store.Finish(ctx, p.ID, history.Settlement(status))
	}
	if err == nil {
		return saved
	}
	if !errors.Is(err, history.ErrTransition) { // another process wrote down as much meanwhile
		e.Log.Error("record what the chain said", "payment", p.ID, "err", err)
	}
	if now, err := e.Store.Payment(ctx, p.ID); err == nil { // it may have been written all the same
		return now
	}
	return p
}

// Background reconciles now, and again while anything stays open, less and less often, until ctx ends.
func (e *Engine) Background(ctx context.Context) {
	const soonest, latest = 5 * time.Second, 5 * time.Minute
	for wait := soonest; ; wait = min(2*wait, latest) {
		report, err := e.Reconcile(ctx)
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("reconcile", "err", err)
		}
		if report.Settled+report.Failed > 0 {
			e.Log.Info("reconciled", "settled", report.Settled, "failed", report.Failed, "open", report.Open)
			wait = soonest
		}
		if len(e.pending.ids())+len(e.inflight.idleStale()) > 0 {
			wait = soonest
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
