package pay

import (
	"context"
	"encoding/json"
	"errors"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// Pay gets what q asks for, paying for it if it must and may. Its error is an *x402.Error.
//
// The order of the steps is the safety argument (docs/design.md): nothing is asked before it is
// known whether this very purchase is under way already; nothing is signed before its money is held
// on disk; nothing leaves before the signed bytes are on disk; from there on the caller's going
// away changes nothing.
func (e *Engine) Pay(ctx context.Context, q Request) (r Result, err error) {
	in, err := q.parse()
	if err != nil {
		return Result{}, err
	}
	if err := e.mayAsk(ctx, in.Request.Request, in.host); err != nil {
		return Result{}, err
	}
	if service, ok := e.deferred(ctx, in); ok {
		return e.Deferred.Buy(ctx, service, in.Request)
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, e.Policy.Deadline)
	defer cancel()

	if result, done, err := e.resume(ctx, in); done || err != nil {
		return result, err
	}

	found, err := e.quote(ctx, in)
	if err != nil {
		return Result{}, err
	}
	if found.challenge == nil {
		return e.free(ctx, found.answer), nil
	}
	if err := e.Guard.CheckConfig(ctx); err != nil {
		return Result{}, err
	}
	found.options = e.judge(found.challenge, in)

	h, err := e.hold(ctx, caller, in, found)
	var taken *history.AlreadyPaying
	if errors.As(err, &taken) {
		// another call with this key was faster, or the same call was left by its client: it is one
		// purchase
		result, done, err := e.takeUp(ctx, in, taken.Payment)
		if !done && err == nil {
			err = x402.Errorf(x402.PayFailed, "the payment that this call is for ended without having "+
				"happened while it was waited for; make the call again")
		}
		return result, err
	}
	if err != nil {
		return Result{}, err
	}
	defer func() { e.inflight.end(h.payment.ID, err == nil && r.Status != StatusUnserved) }()

	reached(ctx, StageHeld, h.payment)
	if err := e.sign(ctx, h, found.challenge); err != nil {
		if h.payment.State == history.Submitted {
			return Result{}, e.keep(ctx, h.payment, err)
		}
		return Result{}, e.release(ctx, h.payment, err)
	}

	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), e.Policy.Deadline)
	defer cancel()
	defer e.watch(caller, h.payment.ID)()
	return e.deliver(ctx, in, h.payment, false)
}

// deferred reports whether the seller is paid with a later request.
func (e *Engine) deferred(ctx context.Context, in intent) (service string, ok bool) {
	if e.Deferred == nil {
		return "", false
	}
	return e.Deferred.Serves(ctx, in.Request.Request)
}

// MayAsk refuses what may not even be asked: forbidden addresses and headers, and hosts the owner
// does not allow.
//
// An MCP server may be a command of config.toml, which asking would start: so nothing of MCP is
// asked under rules nobody sealed.
func (e *Engine) MayAsk(ctx context.Context, r seller.Request) error {
	return e.mayAsk(ctx, r, host(r.URL))
}

func (e *Engine) mayAsk(ctx context.Context, r seller.Request, host string) error {
	if err := e.Transport.Check(r); err != nil {
		return err
	}
	if seller.IsMCP(r.Method) {
		if err := e.Guard.CheckConfig(ctx); err != nil {
			return err
		}
	}
	return e.Rules.CheckHost(host)
}

// sign authorizes exactly what is held and puts the signed bytes on disk. After an error nothing
// has left the process; the payment is Submitted where the bytes are on disk all the same, and who
// reads them could bring them to a facilitator.
func (e *Engine) sign(ctx context.Context, h *held, c *x402.Challenge) error {
	if err := e.Guard.VerifySeals(ctx); err != nil {
		return err
	}
	if h.approval != nil {
		if err := e.Guard.Approved(ctx, h.payment, *h.approval, e.wasHeard(*h.approval)); err != nil {
			return err
		}
	}
	scheme, _ := e.scheme(h.Scheme, h.Network)
	r := h.Requirement
	order := x402.Order{Payment: h.payment.ID, Requirement: r, Asset: h.asset, Source: h.funds.Source,
		Validity: e.validity(r), Now: e.Now()}
	if e.walletSettles(h.payment) {
		var err error
		if r, err = e.completed(ctx, r, h.asset); err != nil {
			return err
		}
		order.Requirement, order.FeePayer = r, r.ExtraString("feePayer")
	}
	const signAgain = 3 // Solana without a memo: two payments may by chance be the same transaction
	for range signAgain {
		a, err := scheme.Authorize(ctx, order)
		if err != nil {
			return err
		}
		payload, err := x402.EncodePayload(c, r, a.Payload, identifier(c, h.payment))
		if err != nil {
			return err
		}
		requirement := x402.RequirementJSON(c, r)
		err = e.Store.Submit(ctx, h.payment.ID, history.Signed{Payload: payload, Requirement: requirement,
			Evidence: a.Evidence, UniqueKey: trace(a.Evidence)})
		if errors.Is(err, history.ErrSignedBefore) {
			continue
		}
		if err != nil {
			return err
		}
		p := &h.payment
		p.State, p.Payload, p.Requirement, p.Evidence = history.Submitted, payload, requirement, a.Evidence
		return e.Guard.Checkpoint(ctx)
	}
	return x402.Errorf(x402.PayFailed, "could not make a payment that differs from those made before")
}

// identifier names the purchase to sellers that offer to remember it (extension
// payment-identifier): the same payment with the same id gets the same answer again, also when the
// first one was lost.
func identifier(c *x402.Challenge, p history.Payment) map[string]json.RawMessage {
	const extension = "payment-identifier"
	if _, offered := c.Extensions[extension]; !offered {
		return nil
	}
	return map[string]json.RawMessage{extension: json.RawMessage(`{"info":{"id":"` + p.ID + `"}}`)}
}

// trace is what a signed payment is known by on its chain.
func trace(e x402.Evidence) string {
	if e.Nonce != "" {
		return e.Network + " " + e.Asset + " " + e.Payer + " " + e.Nonce
	}
	return e.Network + " " + e.Signature
}

// walletSettles reports whether the wallet brings the payment to a facilitator (SPEC §7.2). Over
// MCP there is no way to show proof.
func (e *Engine) walletSettles(p history.Payment) bool {
	return p.Dialect.WalletSettles() || !p.Dialect.MCP() && e.Policy.WalletSettles != nil &&
		e.Policy.WalletSettles(p.Host)
}

// completed adds to a requirement what a facilitator needs and the seed's dialects leave out: the
// EIP-712 domain, from the registry, and the fee payer, from the facilitator.
func (e *Engine) completed(ctx context.Context, r x402.Requirement, asset x402.AssetInfo) (x402.Requirement,
	error) {
	extra := map[string]json.RawMessage{}
	for key, value := range r.Extra {
		extra[key] = value
	}
	put := func(key, value string) {
		if _, given := extra[key]; !given && value != "" {
			extra[key], _ = json.Marshal(value)
		}
	}
	put("name", asset.Name)
	put("version", asset.Version)
	if x402.IsSolana(r.Network) && r.ExtraString("feePayer") == "" {
		// Who let a payment die is not trusted with the next one, for a while: on Solana nobody
		// else could have settled it.
		avoid, err := e.Store.ExpiredFeePayers(ctx, r.Network, e.Now().Add(-forgiven))
		if err != nil {
			return r, err
		}
		address, _, err := e.Settler.FeePayer(ctx, r.Network, r.Version, avoid)
		if err != nil {
			return r, x402.Errorf(x402.FacilitatorError, "no facilitator names a fee payer for %s: %w",
				r.Network, err)
		}
		put("feePayer", address)
	}
	r.Extra = extra
	return r, nil
}

// release ends the hold of a payment of which nothing left the process. If even that cannot be
// written the hold stays, and reconciliation ends it once this process is gone.
func (e *Engine) release(ctx context.Context, p history.Payment, cause error) error {
	if err := e.Store.Release(context.WithoutCancel(ctx), p.ID, x402.AsError(cause).Error()); err != nil {
		e.Log.Error("release a hold", "payment", p.ID, "err", err)
	}
	coded := x402.AsError(cause)
	if coded.Code == x402.Internal {
		e.Log.Error("before anything was sent", "payment", p.ID, "err", cause)
		coded.Code, coded.Message = x402.PayFailed, "the payment could not be prepared; nothing was sent"
	}
	return coded
}

// keep is the error of a payment that is signed and was not sent: the hold stays until the chain
// says that it is dead.
func (e *Engine) keep(ctx context.Context, p history.Payment, cause error) error {
	e.giveUp(ctx, p.ID)
	coded := x402.AsError(cause)
	if coded.Code == x402.Internal {
		e.Log.Error("a signed payment is kept back", "payment", p.ID, "err", cause)
		coded.Code, coded.Message = x402.PayFailed, "the payment could not be sent"
	}
	coded.PaymentID, coded.Spent = p.ID, p.Amount.String()
	return coded
}

// watch marks the payment as waited for by nobody as soon as its caller goes away; the returned
// function ends the watch.
func (e *Engine) watch(caller context.Context, id string) func() bool {
	return context.AfterFunc(caller, func() {
		if err := e.Store.ClearWaiter(context.WithoutCancel(caller), id); err != nil {
			e.Log.Error("note that the caller left", "payment", id, "err", err)
		}
	})
}

// Delivered says that the caller got what it bought: the next identical call is a new purchase.
// Whoever shows a result calls it, after showing it. A purchase that was not served is never
// delivered; the same call asks the seller for it again.
func (e *Engine) Delivered(ctx context.Context, status, paymentID string) {
	if status != StatusPaid && status != StatusReplayed {
		return
	}
	if err := e.Store.Deliver(context.WithoutCancel(ctx), paymentID); err != nil {
		e.Log.Error("note that the answer was delivered", "payment", paymentID, "err", err)
		return // as long as this process lives it knows that nobody needs the answer any more
	}
	e.inflight.forget(paymentID)
}

// Lost says that the caller never got what it bought and no longer waits: the next identical call
// gets it. Without an id nothing was bought.
func (e *Engine) Lost(ctx context.Context, paymentID string) {
	if paymentID == "" {
		return
	}
	if err := e.Store.ClearWaiter(context.WithoutCancel(ctx), paymentID); err != nil {
		e.Log.Error("note that the answer was lost", "payment", paymentID, "err", err)
		return // as long as this process lives it knows that the call was cancelled
	}
	e.inflight.forget(paymentID)
}

var _ Settler = (*facilitator.Client)(nil)
