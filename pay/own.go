package pay

import (
	"context"
	"sync"

	"x402-wallet/history"
)

// own is what the calls of this process do. The ledger tells which process works on a payment and
// which one's client waits for it; of this process that is known better here, because the ledger
// could not be told when the disk failed, and hears of a client's leaving only a moment later. A
// call that has ended works on nothing and nobody waits for it, whatever its row says.
type own struct {
	mu    sync.Mutex
	calls map[string]*ownCall // by payment, from before it is in the ledger
}

type ownCall struct {
	working  bool
	caller   context.Context // who waits, as long as it lasts; nil: nobody
	answered bool            // the answer is on its way to the client
}

// take makes a payment a call's, unless another call of this process works on it. A nil caller
// waits for nothing.
func (o *own) take(id string, caller context.Context) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.calls[id]; c != nil && c.working {
		return false
	}
	if o.calls == nil {
		o.calls = map[string]*ownCall{}
	}
	o.calls[id] = &ownCall{caller: caller, working: true}
	return true
}

// end says that the call is done with a payment; answered, that its client, if it is still there,
// is being told what it bought.
func (o *own) end(id string, answered bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls[id]
	delete(o.calls, id)
	if answered && c != nil && c.caller.Err() == nil {
		o.calls[id] = &ownCall{answered: true}
	}
}

// delivered says that a client has its answer.
func (o *own) delivered(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.calls[id]; c != nil && !c.working { // not when another call with the same key is at it
		delete(o.calls, id)
	}
}

func (o *own) working(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls[id]
	return c != nil && c.working
}

func (o *own) waiting(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls[id]
	return c != nil && (c.answered || c.caller != nil && c.caller.Err() == nil)
}

// driven reports whether anybody works on a payment.
func (e *Engine) driven(p history.Payment) bool {
	if p.LeaseOwner != "" && p.LeaseOwner == e.Store.Self() {
		return e.own.working(p.ID)
	}
	return e.Store.Alive(p.LeaseOwner)
}

// awaited reports whether a client waits for a payment's answer.
func (e *Engine) awaited(p history.Payment) bool {
	if p.Waiter != "" && p.Waiter == e.Store.Self() {
		return e.own.waiting(p.ID)
	}
	return e.Store.Alive(p.Waiter)
}
