package pay

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// inflight is what the calls of this process work on and wait for, by payment. The ledger tells
// which process works on a payment and which one's client waits for it; of this process that is
// known better here, because the ledger could not be written when the disk failed, and learns of a
// client's leaving only a moment later. A call that has ended works on nothing and nobody waits for
// it, whatever its row says.
type inflight struct {
	mu        sync.Mutex
	payments  map[string]*work              // from before they are in the ledger
	unwritten map[[sha256.Size]byte][]*work // those of them that are not in the ledger yet, by request
	// payments that may be this process's by their rows, or waited for by its client, though nobody here
	// works on them: it could not be written down, or may have been written after all
	stale map[string]struct{}
}

// work is what a call does about one payment.
type work struct {
	caller  context.Context // whoever waits does as long as it lasts; nil: nobody waits
	working bool
	// the answer is on its way: from here on only the call itself tells that its client left
	answered bool
	written  chan struct{} // closed when the payment is in the ledger, or will not be
}

// awaited reports whether the payment's client waits for it, as far as another call (nil: none) may know.
func (w *work) awaited(by *Call) bool {
	if w.caller == nil || (!w.answered && w.caller.Err() != nil) {
		return false
	}
	call := CallFrom(w.caller)
	return call == nil || !call.isLeftTo(by)
}

// begin registers a payment that is about to be held for a call, and refuses a call whose client has
// left: whoever asks leftBehind after the client left either finds the payment or knows that it will not
// be made. The returned function has to be called when the payment is in the ledger, or will not be.
func (f *inflight) begin(id string, request [sha256.Size]byte, caller context.Context) (written func(),
	err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err = caller.Err()
	if call := CallFrom(caller); err == nil && call != nil && call.Cancelled() {
		err = context.Canceled // by Leave, which lets the context go on
	}
	if err != nil {
		return nil, x402.Errorf(x402.Timeout, "the client left before anything was held: %w", err)
	}
	f.init()
	w := &work{caller: caller, working: true, written: make(chan struct{})}
	f.payments[id] = w
	f.unwritten[request] = append(f.unwritten[request], w)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(w.written)
		rest := slices.DeleteFunc(f.unwritten[request], func(other *work) bool { return other == w })
		f.unwritten[request] = rest
		if len(rest) == 0 {
			delete(f.unwritten, request)
		}
	}, nil
}

func (f *inflight) init() {
	if f.payments == nil {
		f.payments, f.unwritten = map[string]*work{}, map[[sha256.Size]byte][]*work{}
	}
}

// take makes a payment of the ledger a call's, unless another call of this process works on it. A
// nil caller waits for nothing.
func (f *inflight) take(id string, caller context.Context) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.payments[id]; w != nil && w.working {
		return false
	}
	f.init()
	f.payments[id] = &work{caller: caller, working: true}
	return true
}

// takeStale is take for a payment with a stale row, which is then no longer noted as such: not where somebody
// works on it or waits for it.
func (f *inflight) takeStale(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, stale := f.stale[id]; !stale || !f.isIdle(id) {
		return false
	}
	f.init()
	f.payments[id] = &work{working: true}
	delete(f.stale, id)
	return true
}

// isIdle is called with mu held.
func (f *inflight) isIdle(id string) bool {
	w := f.payments[id]
	return w == nil || (!w.working && !w.awaited(nil))
}

// noteStale says that a payment's row may name this process without reason.
func (f *inflight) noteStale(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stale == nil {
		f.stale = map[string]struct{}{}
	}
	f.stale[id] = struct{}{}
}

// idleStale are the payments with stale rows that nobody here works on or waits for.
func (f *inflight) idleStale() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.stale {
		if f.isIdle(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// end says that the call is done with a payment; answered, that its client, if it is still there,
// is being sent what it bought.
func (f *inflight) end(id string, answered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.payments[id]
	if w == nil {
		return
	}
	if answered && w.awaited(nil) {
		w.working, w.answered = false, true
		return
	}
	delete(f.payments, id)
}

// forget says that the ledger knows what became of a payment's answer.
func (f *inflight) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.payments[id]; w != nil && !w.working { // not when another call is at it
		delete(f.payments, id)
	}
}

// awaitLeftBehind waits until every payment for a request that a call has begun, and whose client
// has left since, is in the ledger or will not be made.
func (f *inflight) awaitLeftBehind(ctx context.Context, request [sha256.Size]byte) {
	for _, written := range f.leftBehind(request) {
		select {
		case <-written:
		case <-ctx.Done():
			return
		}
	}
}

func (f *inflight) leftBehind(request [sha256.Size]byte) (list []<-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.unwritten[request] {
		if !w.awaited(nil) {
			list = append(list, w.written)
		}
	}
	return list
}

func (e *Engine) leased(p history.Payment) bool {
	if p.LeaseOwner != "" && p.LeaseOwner == e.Store.Self() {
		working, _ := e.inflight.look(p.ID, nil)
		return working
	}
	return e.Store.Alive(p.LeaseOwner)
}

// awaited reports whether a client waits for a payment's answer, or has it: for a call that asks for the
// same (nil: any).
func (e *Engine) awaited(p history.Payment, by *Call) bool {
	if p.Waiter != "" && p.Waiter == e.Store.Self() {
		_, awaited := e.inflight.look(p.ID, by)
		return awaited
	}
	return e.Store.Alive(p.Waiter)
}

func (f *inflight) look(id string, by *Call) (working, awaited bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.payments[id]
	if w == nil {
		return false, false
	}
	return w.working, w.awaited(by)
}

// giveUp says that this process neither works on a payment any more nor waits for it. By a row that says
// otherwise other processes would leave the payment to this one, and pay again for its client: what cannot
// be written now, Reconcile writes.
func (e *Engine) giveUp(ctx context.Context, id string) { e.disown(ctx, id, true) }

// releaseLease says that this process no longer works on a payment.
func (e *Engine) releaseLease(ctx context.Context, id string) { e.disown(ctx, id, false) }

// disown takes this process's name out of a payment's row, where it is; waiter says that nobody waits either.
// Where it is not, the payment may be somebody else's by now.
func (e *Engine) disown(ctx context.Context, id string, waiter bool) {
	ctx, cancel := e.Detached(ctx)
	defer cancel()
	p, err := e.Store.Payment(ctx, id)
	self := e.Store.Self()
	if self != "" && p.LeaseOwner == self {
		err = e.Store.ReleaseLease(ctx, id)
	}
	if waiter && self != "" && p.Waiter == self { // also where the lease's end could not be noted
		err = errors.Join(err, e.Store.ClearWaiter(ctx, id))
	}
	if err != nil && !errors.Is(err, history.ErrNotFound) {
		e.inflight.noteStale(id)
		e.Log.Error("note that nobody works on a payment or waits for it", "payment", id, "err", err)
	}
}

// correct disowns a payment whose row is stale, unless somebody here works on it or waits for it.
func (e *Engine) correct(ctx context.Context, id string) {
	if !e.inflight.takeStale(id) {
		return
	}
	defer e.inflight.end(id, false)
	e.disown(ctx, id, true)
}

func (e *Engine) clearWaiter(ctx context.Context, id string) (ok bool) {
	err := e.Store.ClearWaiter(ctx, id)
	if err != nil {
		e.inflight.noteStale(id)
		e.Log.Error("note that nobody waits for a payment", "payment", id, "err", err)
	}
	return err == nil
}

// watch marks the payment as waited for by nobody as soon as its caller goes away; the returned
// function ends the watch.
func (e *Engine) watch(caller context.Context, id string) func() bool {
	return context.AfterFunc(caller, func() { e.clearWaiter(context.WithoutCancel(caller), id) })
}

// Delivered says that the caller got what it bought: the next identical call is a new purchase.
// Whoever shows a result calls it, after showing it: a crash in between leaves the answer to the
// next identical call. A purchase that was not served is never delivered; the same call asks the
// seller for it again.
func (e *Engine) Delivered(ctx context.Context, status, paymentID string) {
	if status != StatusPaid && status != StatusReplayed {
		return
	}
	if err := e.Store.Deliver(context.WithoutCancel(ctx), paymentID); err != nil {
		e.Log.Error("note that the answer was delivered", "payment", paymentID, "err", err)
		return // as long as this process lives it knows that nobody needs the answer any more
	}
	e.inflight.forget(paymentID)
	e.correct(ctx, paymentID)
}

// Lost says that the caller never got what it bought and no longer waits: the next identical call
// gets it. Without an id nothing was bought.
func (e *Engine) Lost(ctx context.Context, paymentID string) {
	if paymentID == "" {
		return
	}
	if e.clearWaiter(context.WithoutCancel(ctx), paymentID) {
		e.inflight.forget(paymentID) // else this process knows that the call was cancelled
	}
}
