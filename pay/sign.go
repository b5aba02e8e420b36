package pay

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// Purchase is one payment on its way. It goes through three states, each on disk before the next step:
//
//	reserved   its money is held (hold.go)        → NotSent gives the money back
//	signed     Submit: the signed bytes are kept  → NotSent keeps the money held until the chain has spoken
//	recorded   what became of it (record.go)
//
// Engine.Pay takes a purchase through all of them. Package scheme/nuwa, whose sellers serve first and
// are paid with a later request, reserves by Engine.Reserve, asks MaySign, signs itself, and
// submits or records. Every purchase ends by End. It is used by one goroutine.
type Purchase struct {
	Payment history.Payment // its row, as this process last knew it

	engine   *Engine
	option   option
	funds    x402.Funds        // as they were read when it was held
	approval *history.Approval // a person's, that it used up; nil: none was needed
	mayPay   bool              // the owner's program let it pass
	endTurn  func()            // of what the token takes one after the other; nil: nothing of that kind
	shared   *onchain.Shared   // with the rest of its batch; nil: it is in none
	proposal *proposal         // of a batch, as long as it is not held
	written  func()            // says that it is held, or will not be; of a proposal
	// gives a channel on to the next call; nil: the payment goes through none
	unlock func()
}

// MaySign is asked before anything is signed: the owner's rules are sealed, the ledger was not rolled back,
// and the owner's program lets the payment pass.
func (p *Purchase) MaySign(ctx context.Context) error {
	if err := p.engine.Guard.VerifySeals(ctx); err != nil {
		return err
	}
	return p.askHook(ctx)
}

// askHook asks the owner's program about the payment, once.
func (p *Purchase) askHook(ctx context.Context) error {
	if p.mayPay || p.engine.Hooks == nil {
		return nil
	}
	ctx, step := steps.Begin(ctx, steps.Hook)
	err := p.engine.Hooks.MayPay(ctx, p.Payment)
	step.End(err)
	if err != nil {
		return &hookError{err}
	}
	p.mayPay = true
	return nil
}

// hookError says that the owner's program did not let a payment pass: that is about the purchase, so no other
// option is taken instead.
type hookError struct{ why error }

func (e *hookError) Error() string { return e.why.Error() }

func (e *hookError) Unwrap() error { return e.why }

// ApprovedHere reports whether a person at this process's client approved the payment.
func (p *Purchase) ApprovedHere() bool {
	return p.approval != nil && p.engine.isLocalApproval(*p.approval)
}

// sign authorizes exactly what is held and puts the signed bytes on disk. After an error nothing
// has left the process.
func (p *Purchase) sign(ctx context.Context, c *wire.Challenge) (err error) {
	ctx, step := steps.Begin(ctx, steps.Sign)
	defer func() { step.End(err) }()
	if err := p.MaySign(ctx); err != nil {
		return err
	}
	e, r := p.engine, p.option.Requirement
	scheme, _ := e.payer(p.option)
	use := p.option.use
	if use != nil {
		r.Amount = use.Price // of which the row may hold more, as a deposit
	}
	order := onchain.Order{Payment: p.Payment.ID, Requirement: r, Asset: p.option.asset,
		Extensions: c.Extensions, Source: p.Payment.Source, Validity: e.validity(p.option), Now: e.Now(),
		Shared: p.shared}
	if use != nil {
		order.Channel = &use.Order
	}
	if e.walletSettles(p.Payment) {
		var err error
		if r, err = e.completed(ctx, r, p.option); err != nil {
			return err
		}
		order.Requirement, order.FeePayer = r, r.ExtraString("feePayer")
	}
	if err := p.awaitTurns(ctx); err != nil {
		return err
	}
	const signAgain = 3 // Solana without a memo: two payments may by chance be the same transaction
	for range signAgain {
		over := awaiting(ctx) // a person may have to unlock the wallet
		a, err := scheme.Authorize(ctx, order)
		over()
		if err != nil {
			return err
		}
		if !a.Evidence.ExpiresAt.IsZero() {
			e.localExpiries.note(p.Payment.ID, a.Evidence.ExpiresAt.Sub(order.Now)+maxSkew)
		}
		payload, err := wire.EncodePayload(c, r, a.Payload, extended(identifier(c, p.Payment), a.Extensions))
		if err != nil {
			return err
		}
		signed := history.Signed{Payload: payload, Requirement: wire.RequirementJSON(r),
			Evidence: a.Evidence, UniqueKey: a.Evidence.Unique()}
		if use != nil {
			next, err := use.Signed(p.Payment.ID, *a.Voucher)
			if err != nil {
				return err
			}
			signed.Channel = &next
		}
		err = p.Submit(ctx, signed)
		if !errors.Is(err, history.ErrSignedBefore) {
			return err
		}
		byChallenge := a.Evidence.Nonce != "" || a.Evidence.Way == x402.Tempo
		if r.Charge != nil && byChallenge { // its nonce or memo: it would be the same again
			return x402.Errorf(x402.InvalidRequirement,
				"the seller asks with a challenge (MPP) that was answered with another payment before").
				WithHint("nothing was sent; a challenge is good for one payment")
		}
	}
	return x402.Errorf(x402.PayFailed, "could not make a payment that differs from those made before")
}

// Submit puts the signed bytes on disk, sealed, and renews the ledger's checkpoint. Only when it
// returns nil may a byte of them leave the process. After another error than
// history.ErrSignedBefore the bytes may be on disk all the same, and whoever reads them could bring
// them to a facilitator: see NotSent.
func (p *Purchase) Submit(ctx context.Context, signed history.Signed) error {
	_, step := steps.Begin(ctx, steps.Submit)
	err := p.engine.Guard.Submit(ctx, p.Payment, signed, p.ApprovedHere())
	step.End(err)
	if err == nil {
		p.Payment.State, p.Payment.Payload = history.Submitted, signed.Payload
		p.Payment.Requirement, p.Payment.Evidence = signed.Requirement, signed.Evidence
		note(ctx, p.Payment)
		return nil
	}
	if now, reading := p.engine.Store.Payment(context.WithoutCancel(ctx), p.Payment.ID); reading == nil {
		p.Payment = now
		note(ctx, now)
	}
	return err
}

// NotSent ends a purchase of which nothing left the process because of cause, and gives its error:
// without signed bytes on disk the money is free again, with them it stays held.
func (p *Purchase) NotSent(ctx context.Context, cause error) error {
	if p.Payment.State == history.Submitted {
		return p.engine.keepHold(ctx, p.Payment, cause)
	}
	return p.engine.release(ctx, p.Payment, cause)
}

// End says that the call is done with its purchase; answered, that the client is being sent what it bought.
func (p *Purchase) End(answered bool) {
	if p.endTurn != nil {
		p.endTurn()
	}
	p.engine.inflight.end(p.Payment.ID, answered)
	if p.unlock != nil {
		p.unlock()
	}
}

// release ends the hold of a payment of which nothing left the process. If even that cannot be
// written the hold stays, and whoever looks at it next ends it.
func (e *Engine) release(ctx context.Context, p history.Payment, cause error) error {
	ctx, cancel := e.Detached(ctx)
	defer cancel()
	err := e.Store.Release(ctx, p.ID, x402.AsError(cause).Error())
	if errors.Is(err, history.ErrTransition) { // the unlock agent signed it, and its answer was lost
		return e.keepHold(ctx, p, cause)
	}
	if err != nil {
		e.Log.Error("release a hold", "payment", p.ID, "err", err)
		e.giveUp(ctx, p.ID)
	} else {
		p.State = history.Failed
		note(ctx, p)
	}
	return e.notPrepared(p, cause)
}

// notPrepared is the error of a payment of which nothing left the process.
func (e *Engine) notPrepared(p history.Payment, cause error) error {
	coded := x402.AsError(cause)
	switch {
	case coded.Code == x402.Internal && errors.Is(cause, context.DeadlineExceeded):
		return x402.Errorf(x402.Timeout, "the payment was not signed within %s; nothing was sent",
			e.Policy.Deadline).
			WithHint("make the same call again; policy.deadline is how long a call may take")
	case coded.Code == x402.Internal:
		e.Log.Error("before anything was sent", "payment", p.ID, "err", cause)
		coded.Code, coded.Message = x402.PayFailed, "the payment could not be prepared; nothing was sent"
	}
	return coded
}

// keepHold is the error of a payment that is signed and was not sent: its hold stays until the chain says
// that it has expired.
func (e *Engine) keepHold(ctx context.Context, p history.Payment, cause error) error {
	e.giveUp(ctx, p.ID)
	coded := x402.AsError(cause)
	if coded.Code == x402.Internal {
		e.Log.Error("a signed payment is kept back", "payment", p.ID, "err", cause)
		coded.Code, coded.Message = x402.PayFailed, "the payment could not be sent"
	}
	if coded.Code == x402.PayFailed && coded.Next == nil {
		coded.WithNext(nextOfHeld(coded.Code, p, e.Now()))
	}
	coded.PaymentID, coded.Spent = p.ID, p.Amount.String()
	return coded.WithDetail("held", p.Amount)
}

// validity is how long the signature may live: the seller's wish, capped by the owner and by what a vault
// takes.
func (e *Engine) validity(o option) time.Duration {
	wanted := min(o.MaxTimeout, e.Policy.MaxTimeout)
	if o.maxValidity > 0 {
		wanted = min(wanted, o.maxValidity)
	}
	return wanted
}

// identifier names the purchase to sellers that offer to remember it (extension
// payment-identifier): the same payment with the same id gets the same answer again, also when the
// first one was lost.
func identifier(c *wire.Challenge, p history.Payment) map[string]json.RawMessage {
	const extension = "payment-identifier"
	if _, offered := c.Extensions[extension]; !offered {
		return nil
	}
	return map[string]json.RawMessage{extension: json.RawMessage(`{"info":{"id":"` + p.ID + `"}}`)}
}

// extended are our extensions with those of the scheme.
func extended(ours, schemes map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	maps.Copy(all, ours)
	maps.Copy(all, schemes)
	return all
}

// walletSettles reports whether the wallet brings the payment to a facilitator. Over
// MCP there is no way to show proof.
func (e *Engine) walletSettles(p history.Payment) bool {
	if p.Dialect.WalletSettles() {
		return true
	}
	if e.wayOf(p).SellerSettles() {
		return false
	}
	return !p.Dialect.MCP() && e.Policy.WalletSettles != nil && e.Policy.WalletSettles(p.Host)
}

// completed adds to a requirement what a facilitator needs and the X-Payment-Required dialects leave out: the
// EIP-712 domain, from the registry, and the fee payer, from the facilitator.
func (e *Engine) completed(ctx context.Context, r x402.Requirement, o option) (x402.Requirement, error) {
	extra := map[string]json.RawMessage{}
	maps.Copy(extra, r.Extra)
	put := func(key, value string) {
		if _, given := extra[key]; !given && value != "" {
			extra[key], _ = json.Marshal(value)
		}
	}
	put("name", o.asset.Name)
	put("version", o.asset.Version)
	if x402.IsSolana(r.Network) && r.ExtraString("feePayer") == "" {
		// A fee payer that let a payment expire is passed over for a while (feePayerBackoff). It is
		// part of what is signed, so on Solana only another transaction can go to another
		// facilitator, and only after the chain has proven that the first one expired.
		expired, err := e.Store.Expired(ctx, r.Network, e.Now().Add(-feePayerBackoff))
		if err != nil {
			return r, err
		}
		var avoid []string
		for _, p := range expired {
			if payer := p.Evidence.FeePayer; payer != "" && !slices.Contains(avoid, payer) {
				avoid = append(avoid, payer)
			}
		}
		terms := facilitator.Terms{Network: r.Network, Asset: o.asset.Address, Symbol: o.asset.Symbol,
			Price: o.price}
		address, _, err := e.Settler.FeePayer(ctx, terms, r.Version, avoid)
		if err != nil {
			return r, x402.Errorf(x402.FacilitatorError, "no facilitator names a fee payer for %s: %w",
				x402.Title(r.Network), err).WithHint("nothing was signed or held; make the same call again")
		}
		put("feePayer", address)
	}
	r.Extra = extra
	return r, nil
}
