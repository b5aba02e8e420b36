package pay

import (
	"context"
	"errors"
	"time"

	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/x402"
)

// poll is how often a call looks whether the payment it waits for has ended.
const poll = 50 * time.Millisecond

// resume finds out whether this call is one that was made before: the same idempotency key, or the
// same request with a payment that nobody waits for and that is unfinished or whose answer was
// never delivered. Such a call never pays again. A payment whose own caller still waits is somebody
// else's purchase, even if it is for the same thing.
//
// Two identical calls may be two purchases, made in parallel, or one call made twice, because its
// answer was lost. They are told apart by whether somebody waits. Nobody waits for a payment any more
// when its caller cancelled, disconnected or died, got the answer that the outcome is open, or never
// had its answer written to it. Whether somebody waits is looked at once more in the transaction that
// holds money (history.Store.Reserve). An idempotency key overrides all of this: one key is one
// purchase for ever. So of 100 identical parallel calls with room for ten, ten settle, and a repeated
// call pays nothing.
func (e *Engine) resume(ctx context.Context, q intent) (r Result, done bool, err error) {
	ctx, step := steps.Begin(ctx, steps.Resume)
	defer func() { step.End(err) }()
	if q.IdempotencyKey != "" {
		p, err := e.Store.ByKey(ctx, q.agent, q.IdempotencyKey)
		if err == nil {
			return e.takeUp(ctx, q, p)
		}
		if !errors.Is(err, history.ErrNotFound) {
			return r, false, err
		}
	}
	if q.OfSubscription { // what the agent bought by itself is none of its slots
		return r, false, nil
	}
	e.inflight.awaitLeftBehind(ctx, q.fingerprint)
	list, err := e.Store.ByRequest(ctx, q.fingerprint)
	if err != nil {
		return r, false, err
	}
	for _, p := range list {
		ours, err := e.isOurs(ctx, q, p)
		var paying *history.AlreadyPaying
		switch {
		case errors.As(err, &paying): // meanwhile another call with this key made its payment
			return e.takeUp(ctx, q, paying.Payment)
		case err != nil:
			return r, false, err
		case !ours:
			continue
		}
		if r, done, err := e.takeUp(ctx, q, p); done || err != nil {
			return r, done, err
		}
	}
	return r, false, nil
}

// isOurs reports whether a payment for the same request is this call's purchase. A call with an
// idempotency key that takes up a payment without one gives it the key.
func (e *Engine) isOurs(ctx context.Context, q intent, p history.Payment) (bool, error) {
	by := CallFrom(ctx)
	if q.IdempotencyKey != "" {
		by = nil // what a late answer bought is not this key's purchase
	}
	switch {
	case e.awaited(p, by):
		return false, nil
	case q.IdempotencyKey == "" || q.IdempotencyKey == p.IdempotencyKey:
		return true, nil
	case p.IdempotencyKey != "":
		return false, nil // another key says: another purchase
	case p.Delivered:
		return false, nil // that one has its answer; this key's purchase is another one
	}
	return e.Store.AttachIdempotencyKey(ctx, p.ID, q.IdempotencyKey)
}

// takeUp brings a payment that exists to its end for this call. done is false when it ended without
// having happened, so that the call may start from the beginning.
func (e *Engine) takeUp(ctx context.Context, q intent, p history.Payment) (r Result, done bool, err error) {
	if p.Fingerprint != q.fingerprint {
		return r, false, otherRequest(p)
	}
	for {
		note(ctx, p)
		if p.State == history.Failed {
			return r, false, nil
		}
		if p.State == history.Settled {
			if r, done, err := e.replay(ctx, p); done || err != nil {
				return r, done, err
			}
		}
		if !e.leased(p) {
			if fresh, mine, err := e.acquireLease(ctx, ctx, p); err != nil {
				return r, false, err
			} else if mine {
				return e.resend(ctx, q, fresh)
			}
		}
		if pause(ctx, poll) != nil {
			return r, false, unknown(x402.OutcomeUnknown, "the payment is still under way").error(p, nil,
				e.Now())
		}
		if p, err = e.Store.Payment(ctx, p.ID); err != nil {
			return r, false, err
		}
	}
}

func otherRequest(p history.Payment) error {
	return x402.Errorf(x402.InvalidArgument, "this idempotencyKey belongs to another request").
		WithHint("use a new key for a new purchase, or repeat the first request exactly").
		WithDetail("paymentId", p.ID)
}

// acquireLease takes a payment that nobody works on for the caller (nil: nobody waits), and reads it again:
// since it was read before, a process that has died meanwhile may have sent it, and more.
func (e *Engine) acquireLease(ctx, caller context.Context, p history.Payment) (fresh history.Payment,
	mine bool, err error) {
	if !e.inflight.take(p.ID, caller) {
		return p, false, nil
	}
	mine, err = e.Store.AcquireLease(ctx, p.ID, p.LeaseOwner)
	if err == nil && mine {
		fresh, err = e.Store.Payment(ctx, p.ID)
	}
	if err != nil || !mine {
		e.inflight.end(p.ID, false)
	}
	switch {
	case err != nil:
		e.inflight.noteStale(p.ID) // the lease may be this process's all the same
		e.correct(ctx, p.ID)
		return p, false, err
	case !mine:
		return p, false, nil
	}
	return fresh, true, nil
}

// mayGoOut refuses to bring signed bytes out again for a caller that offers less, from what is
// frozen, and under rules that are not sealed. Where they may never have left, they leave as from
// their signing: the seals are checked, and the ledger's checkpoint is renewed.
func (e *Engine) mayGoOut(ctx context.Context, q intent, p history.Payment) error {
	if asked, most, ok := q.limit.allows(p.Amount, e.Worth(p)); !ok {
		return x402.Errorf(x402.AmountExceedsMax,
			"a payment of %s for this request is signed and under way, maxAmount is %s", p.Price.Price(),
			most).
			WithHint("the call that began it, or one with maxAmount %q, brings it to its end; it was not "+
				"sent again for this one", asked).
			WithDetail("requested", asked).WithDetail("maxAmount", most).
			WithNext(x402.Next{Do: x402.Change, Why: "the very same call is refused again"})
	}
	if err := e.Store.NotFrozen(ctx, p.Network, p.Source); err != nil {
		return err
	}
	if p.Payload == nil {
		return unknown(x402.OutcomeUnknown, "it was signed, and the process that asked for it ended before "+
			"it had the signature").error(p, nil, e.Now())
	}
	if p.State != history.Submitted {
		return e.Guard.CheckConfig(ctx)
	}
	if err := e.Guard.VerifySeals(ctx); err != nil {
		return err
	}
	return e.Guard.Checkpoint(ctx)
}

// resend is the same purchase once more: the chain is asked first, then the very same bytes are sent.
func (e *Engine) resend(ctx context.Context, q intent, p history.Payment) (r Result, done bool, err error) {
	defer func() { e.inflight.end(p.ID, done && r.Status != StatusUnserved) }()
	caller := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Patience(p))
	defer cancel()
	if p.State == history.Reserved {
		return r, false, e.releaseUnsigned(ctx, p)
	}
	if c, isOne := e.channelled(p.Scheme); isOne {
		unlock, err := c.Lock(ctx, p.Network, p.Host, p.Evidence.Channel)
		if err != nil {
			e.giveUp(ctx, p.ID)
			return r, false, err
		}
		defer unlock()
		now, err := e.Store.Payment(ctx, p.ID) // another call's answer may have ended it
		if err != nil {
			e.giveUp(ctx, p.ID)
			return r, false, err
		}
		p = now
	}
	if p, err = e.save(ctx, p); err != nil {
		e.giveUp(ctx, p.ID)
		return r, false, err
	}
	if p.Proof != history.Chain {
		// A claim, too: a facilitator that settled and named another transaction, or settled
		// nothing, would otherwise keep the seller refusing this call until the next
		// reconciliation, which a single command never makes.
		p = e.AskChain(ctx, p)
	}
	if p.State == history.Failed {
		return r, false, nil
	}
	// its content was given out before, only its proof was missing
	given := p.Delivered && q.IdempotencyKey == ""
	if given && p.State == history.Settled {
		e.releaseLease(ctx, p.ID)
		return r, false, nil
	}
	if !given {
		if r, done, err := e.replayStored(ctx, p); done || err != nil {
			return r, done, err
		}
	}
	// A seller's word that it settled proves nothing: the bytes may still move money. Where the wallet
	// settled by itself, its proof alone is shown.
	isOver := p.State == history.Settled && (p.Proof == history.Chain || e.walletSettles(p))
	if !isOver {
		if err := e.mayGoOut(ctx, q, p); err != nil {
			return r, false, e.keepHold(ctx, p, err)
		}
	}
	defer e.watch(caller, p.ID)()
	r, err = e.send(ctx, q, p, true)
	if errors.Is(err, errRecounted) { // it ended without having happened
		return Result{}, false, nil
	}
	return r, err == nil, err
}

// releaseUnsigned releases a hold whose process died before the signed bytes were on disk: they never left.
func (e *Engine) releaseUnsigned(ctx context.Context, p history.Payment) error {
	err := e.Store.Release(ctx, p.ID, "its process ended before anything was sent")
	if errors.Is(err, history.ErrNotLeaseOwner) {
		return unknown(x402.OutcomeUnknown, "another process works on the payment").error(p, nil, e.Now())
	}
	return err
}

// replayStored is replay by the holder of the payment's lease, which is released then.
func (e *Engine) replayStored(ctx context.Context, p history.Payment) (r Result, done bool, err error) {
	r, done, err = e.replay(ctx, p)
	switch {
	case done:
		e.releaseLease(ctx, p.ID)
	case err != nil:
		e.giveUp(ctx, p.ID)
	}
	return r, done, err
}
