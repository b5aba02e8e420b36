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

// send brings the signed bytes to whoever settles, and records what became of it. again says
// that these bytes may have been out before, so that not sending them now proves nothing.
func (e *Engine) send(ctx context.Context, q intent, p history.Payment, again bool) (Result, error) {
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
			reached(ctx, stageSettled, p)
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
