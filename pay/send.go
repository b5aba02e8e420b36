package pay

import (
	"cmp"
	"context"
	"errors"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// deliver brings the signed bytes to whoever settles, and records what became of it. again says
// that these bytes may have been out before, so that not sending them now proves nothing.
func (e *Engine) deliver(ctx context.Context, q intent, p history.Payment, again bool) (Result, error) {
	reached(ctx, StageSent, p)
	with := x402.Attach(p.Dialect, p.Payload)
	if e.walletSettles(p) {
		if p.State != history.Settled {
			v := judgeSettling(e.settle(ctx, p))
			if v.code != "" {
				return e.finish(ctx, p, v, nil)
			}
			if saved, err := e.Store.Finish(ctx, p.ID, v.outcome()); err == nil {
				p = saved
			} else { // the signed bytes and the hold are on disk; the proof goes to the seller all the same
				e.Log.Error("record a settlement", "payment", p.ID, "err", err)
				p.Transaction = v.transaction
			}
			reached(ctx, StageSettled, p)
			again = true
		}
		with = x402.AttachProof(p.Transaction)
	}
	target := q.Request.Request
	target.URL = cmp.Or(p.Target, q.URL) // the same request, or it had another fingerprint
	answer, err := e.Transport.Present(ctx, target, with)
	var failed *seller.SendError
	return e.finish(ctx, p, judge(facts{
		sent: !errors.As(err, &failed) || failed.Sent, again: again, settled: p.State == history.Settled,
		answer: answer, cut: answer != nil && err != nil, paid: p,
	}), answer)
}

// settle brings the payment to the facilitators, in their order, the same bytes to each.
func (e *Engine) settle(ctx context.Context, p history.Payment) facilitator.Result {
	version := 2
	if p.Dialect == x402.DialectV1Body {
		version = 1
	}
	return e.Settler.Settle(ctx, facilitator.Submission{
		Network: p.Network, Version: version, Payload: p.Payload, Requirements: p.Requirement,
		Validity: max(p.Evidence.ExpiresAt.Sub(e.Now()), time.Second),
		Sticky:   x402.IsSolana(p.Network), FeePayer: p.Evidence.FeePayer,
	})
}

// finish records a verdict with the content that came, and makes the caller's answer of it.
// It has its own time: the call's own may just have ended, and that is when recording matters.
func (e *Engine) finish(ctx context.Context, p history.Payment, v verdict, answer *seller.Answer) (Result,
	error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWait)
	defer cancel()
	outcome := v.outcome()
	outcome.ReleaseLease, outcome.ClearWaiter = true, v.code != "" || !v.served
	kept := v.keeps(answer, p)
	if kept {
		content := came(answer)
		outcome.Content = &content
	}
	saved, unstored, err := e.record(ctx, p, outcome, v.served)
	if err != nil { // submitted and its hold are on disk; reconciliation finds the rest
		e.Log.Error("record an outcome", "payment", p.ID, "err", err)
		p.State, p.Proof, p.Transaction = v.state, v.proof, cmp.Or(v.transaction, p.Transaction)
		saved = p
	}
	if saved.State == history.Unknown && v.served { // content without a receipt: the chain may know already
		saved = e.askChain(ctx, saved)
	}
	given := saved.Delivered && saved.IdempotencyKey == ""
	// what is stored as bought is not this answer
	another := !kept || !isOK(answer.Status)
	if !v.served && (saved.State == history.Settled || !given && another) {
		// it may have been served to another call meanwhile
		if r, done, err := e.replay(ctx, saved); done && err == nil {
			return r, nil
		}
	}
	if v.code != "" {
		return Result{}, v.error(saved, answer)
	}
	r := e.paid(ctx, saved, v, answer)
	if unstored != nil && r.ContentTruncated { // the rest would be lost, and the same call another purchase
		e.giveUp(ctx, p.ID)
		return Result{}, e.notStored(saved, unstored)
	}
	return r, nil
}

// giveUp says that this process neither works on a payment any more nor waits for it.
func (e *Engine) giveUp(ctx context.Context, id string) {
	e.releaseLease(ctx, id)
	if err := e.Store.ClearWaiter(context.WithoutCancel(ctx), id); err != nil {
		e.Log.Error("note that nobody waits for a payment", "payment", id, "err", err)
	}
}

// releaseLease says that this process no longer works on a payment.
func (e *Engine) releaseLease(ctx context.Context, id string) {
	if err := e.Store.ReleaseLease(context.WithoutCancel(ctx), id); err != nil {
		e.Log.Error("release the lease of a payment", "payment", id, "err", err)
	}
}
