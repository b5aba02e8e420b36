package pay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// send brings the signed bytes to whoever settles, and records what became of it. again says
// that these bytes may have been out before, so that not sending them now proves nothing.
//
// Where a seller that may settle itself or may not was shown the payment and did not look at it, the wallet
// settles with the same bytes (wasIgnored). After a crash in between, the same call begins here once more:
// the payment is shown again, and ignored again.
func (e *Engine) send(ctx context.Context, q intent, p history.Payment, again bool) (Result, error) {
	reached(ctx, StageSent, p)
	if c, isOne := e.channelled(p.Scheme); isOne {
		payload := p.Payload
		if again {
			payload = c.ShownAgain(ctx, p)
		}
		return e.finishCounted(ctx, c, p, e.show(ctx, q, p, again, wire.Attach(p.Dialect, payload)))
	}
	if e.walletSettles(p) {
		return e.settleAndShow(ctx, q, p, again)
	}
	payload, err := e.pushed(ctx, p)
	if err != nil {
		e.Log.Warn("send a payment to its network", "payment", p.ID, "err", err)
		return e.finish(ctx, p, unknown(x402.OutcomeUnknown, "the network may have the payment or not: "+
			x402.AsError(err).Message), nil)
	}
	f := e.show(ctx, q, p, again, wire.Attach(p.Dialect, payload))
	f = e.lookAgain(ctx, f)
	isIgnored := e.wasIgnored(ctx, q, f)
	if isIgnored && !f.settled { // nobody else gets the signed bytes of what was frozen meanwhile
		isIgnored = e.Store.NotFrozen(ctx, p.Network, p.Source) == nil
	}
	if !isIgnored {
		return e.finish(ctx, p, judge(f), f.answer)
	}
	f.answer.Release()
	reached(ctx, stageIgnored, p)
	return e.settleAndShow(ctx, q, p, true)
}

// pushed returns the payload that the seller is shown: the signed payment, or the hash of one that was sent.
func (e *Engine) pushed(ctx context.Context, p history.Payment) (json.RawMessage, error) {
	scheme, _ := e.scheme(p.Scheme, p.Network)
	pusher, is := scheme.(Pusher)
	if !is {
		return p.Payload, nil
	}
	return pusher.Pushed(ctx, p)
}

// lookAgain asks the chain about a payment that was shown again and refused: a seller that has settled it
// already may say so by asking once more, and in words that are no proof of anything (Permit2: 412
// permit2_allowance_required).
func (e *Engine) lookAgain(ctx context.Context, f facts) facts {
	isRefused := f.answer != nil && f.answer.Status >= 400 && f.answer.Status < 500 &&
		f.answer.Settlement == nil
	if !f.again || f.settled || !isRefused || !plainIfNil(f.way).AskChainAgain() {
		return f
	}
	f.paid = e.AskChain(ctx, f.paid)
	f.settled = f.paid.State == history.Settled
	return f
}

// settleAndShow has a facilitator settle, unless that is done, and shows the seller the proof.
func (e *Engine) settleAndShow(ctx context.Context, q intent, p history.Payment, again bool) (Result, error) {
	if p.State != history.Settled {
		v := judgeSettling(e.settle(ctx, p), p.Network)
		if v.code != "" {
			return e.finish(ctx, p, v, nil)
		}
		if saved, err := e.Store.Finish(ctx, p.ID, v.outcome()); err == nil {
			p = saved
			note(ctx, p)
		} else { // the signed bytes and the hold are on disk; the proof goes to the seller all the same
			e.Log.Error("record a settlement", "payment", p.ID, "err", err)
			p.State, p.Proof, p.Transaction, p.Facilitator = v.state, v.proof, v.transaction,
				v.settling.Facilitator
		}
		reached(ctx, stageSettled, p)
		again = true
	}
	f := e.show(ctx, q, p, again, wire.AttachProof(p.Transaction))
	return e.finish(ctx, p, judge(f), f.answer)
}

// show presents the request with a payment or a proof.
func (e *Engine) show(ctx context.Context, q intent, p history.Payment, again bool,
	with wire.Attachment) facts {
	return e.showAt(ctx, e.target(q, p), p, again, with)
}

// showAt is show at another address than the one that was paid for.
func (e *Engine) showAt(ctx context.Context, target seller.Request, p history.Payment, again bool,
	with wire.Attachment) facts {
	sending, step := steps.Begin(ctx, steps.Send)
	over := awaiting(ctx)
	answer, err := e.Transport.Present(sending, target, with)
	if err == nil {
		answer = e.follow(sending, target, answer)
	}
	over()
	ended(step, answer, err)
	var failed *seller.SendError
	return facts{
		sent: !errors.As(err, &failed) || failed.Sent, again: again, settled: p.State == history.Settled,
		answer: answer, cut: answer != nil && err != nil, paid: p, way: e.wayOf(p),
		gaveUp: e.gaveUp(ctx, p),
	}
}

// target is the same request where it led, or it had another fingerprint.
func (e *Engine) target(q intent, p history.Payment) seller.Request {
	r := q.Request.Request
	r.URL = cmp.Or(p.Target, q.URL)
	return r
}

// wasIgnored reports whether a payment that was shown is proven not to be used, and the seller seems never
// to have looked at it: it asks as before (isUnheard), asks in the very same words when it is shown nothing,
// and the chain shows the payment unused. Should the seller settle it all the same, at this moment, it is
// the same payment: one of the two moves the money. Whatever of this is not certain is no.
//
// A payment that is settled moves nothing more: its proof may be shown in any case.
func (e *Engine) wasIgnored(ctx context.Context, q intent, f facts) bool {
	if !f.isUnheard() {
		return false
	}
	if f.settled {
		return f.paid.Transaction != ""
	}
	bare, err := e.Transport.Ask(ctx, e.target(q, f.paid))
	if err != nil {
		return false
	}
	defer bare.Release()
	asksAlike := bare.Status == f.answer.Status && bare.Challenge != nil &&
		bare.Challenge.Error == f.answer.Challenge.Error && asksTheSame(*bare.Challenge, f.paid)
	return asksAlike && e.isUnused(ctx, f.paid)
}

// isUnused reports whether the chain shows that a signed payment was not used yet. Under rules that are not
// sealed nobody is asked: whoever chooses the node chooses the evidence.
func (e *Engine) isUnused(ctx context.Context, p history.Payment) bool {
	reader, ok := e.statusReader(p.Scheme, p.Network)
	if !ok || e.Guard.CheckConfig(ctx) != nil {
		return false
	}
	status, err := reader.Status(ctx, p.Evidence)
	return err == nil && status.State == x402.Open && status.Unused
}

// settle brings the payment to the facilitators, in their order, the same bytes to each.
func (e *Engine) settle(ctx context.Context, p history.Payment) facilitator.Result {
	defer awaiting(ctx)()
	ctx, step := steps.Begin(ctx, steps.Settle)
	result := e.Settler.Settle(ctx, facilitator.Submission{
		Network: p.Network, Version: p.Dialect.Version(), Payload: p.Payload, Requirements: p.Requirement,
		Validity: max(p.Evidence.ExpiresAt.Sub(e.Now()), time.Second),
		Sticky:   x402.IsSolana(p.Network), FeePayer: p.Evidence.FeePayer,
		Asset: p.Asset, Symbol: p.Symbol, Price: p.Price, Payer: p.Evidence.Payer,
	})
	step.End(result.Err)
	return result
}
