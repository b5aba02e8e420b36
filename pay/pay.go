package pay

import (
	"context"
	"errors"

	"x402-wallet/history"
	"x402-wallet/internal/steps"
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
	ctx, recorder := e.observed(ctx)
	defer func() { e.report(recorder, r, err) }()
	in, err := q.parse(AgentFrom(ctx))
	if err != nil {
		return Result{}, err
	}
	recorder.At(in.host, "")
	if err := awaitFirst(ctx); err != nil {
		return Result{}, err
	}
	r, err = e.pay(ctx, in)
	e.alertDamage(ctx, err)
	if e.Hooks != nil {
		e.Hooks.Wake()
	}
	if err == nil && r.PaymentRequired {
		r.Repeat = repeatOf(CallFrom(ctx), in, r)
	}
	return r, err
}

func (e *Engine) pay(ctx context.Context, in intent) (r Result, err error) {
	if err := e.mayAsk(ctx, in.Request.Request, in.host); err != nil {
		return Result{}, err
	}
	if service, ok := e.deferred(ctx, in); ok {
		if in.OfSubscription {
			return Result{}, x402.Errorf(x402.PolicyDenied, "%s is paid through a payment channel, after it "+
				"served, and subscriptions are paid before", x402.Brief(in.host)).
				WithHint("the agent calls it when it needs it")
		}
		ctx, step := steps.Begin(ctx, steps.Deferred)
		r, err := e.Deferred.Buy(ctx, service, Charge{in: in})
		step.End(err)
		return r, err
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, e.Policy.Deadline)
	defer cancel()
	_, step := steps.Begin(ctx, steps.Gate)
	ctx, leave, err := e.gate.enter(ctx, in.host)
	step.End(err)
	if err != nil {
		return Result{}, err
	}
	defer leave()

	found, r, err := e.find(ctx, caller, in)
	if found == nil || err != nil {
		return r, err
	}
	defer found.ahead.stop()
	return e.buyRecounted(ctx, caller, in, found)
}

// find is what comes before anything is held: a call that was made before is answered from what it bought,
// and so is one that costs nothing. Else found is what the seller asks, whose readings the caller stops.
func (e *Engine) find(ctx, caller context.Context, in intent) (found *quote, r Result, err error) {
	if r, done, err := e.resume(ctx, in); done || err != nil {
		return nil, r, err
	}
	var ahead readings
	if in.many == nil { // whose payments share what is read
		ahead = e.readAhead(ctx, in.host)
	}
	defer func() {
		if found == nil {
			ahead.stop()
		}
	}()
	asked, err := e.quote(ctx, in)
	if err != nil {
		return nil, r, err
	}
	asked.ahead = ahead
	if asked.challenge == nil {
		defer asked.answer.Release()
		return nil, e.free(asked.answer), nil
	}
	if r, done, err := e.reuse(ctx, caller, in, asked.challenge); done || err != nil {
		return nil, r, err
	}
	if wrong := wrongCall(asked.challenge, in); wrong != nil {
		return nil, r, wrong
	}
	if err := e.Guard.CheckConfig(ctx); err != nil {
		return nil, r, err
	}
	asked.options = e.judge(asked, in)
	if in.OfSubscription { // which buys anew in each slot
		return asked, r, nil
	}
	if r, done, err := e.signIn(ctx, caller, in, asked); done || err != nil {
		return nil, r, err
	}
	return asked, r, nil
}

// buyRecounted is buy, once more where a seller counts from another sum. No other call
// uses the channel between the two tries.
func (e *Engine) buyRecounted(ctx, caller context.Context, in intent, found *quote) (r Result, err error) {
	defer found.releaseChannel()
	r, err = e.buy(ctx, caller, in, found)
	if errors.Is(err, errRecounted) {
		r, err = e.buy(ctx, caller, in, found)
	}
	if errors.Is(err, errRecounted) {
		err = x402.Errorf(x402.PaymentRejected, "the seller says each time that it counts from another sum").
			WithHint("nothing is held; its next challenge may be better")
	}
	return r, err
}

// buy holds, signs and sends the payment of the best option.
func (e *Engine) buy(ctx, caller context.Context, in intent, found *quote) (r Result, err error) {
	p, err := e.prepare(ctx, caller, in, found)
	var taken *history.AlreadyPaying
	if errors.As(err, &taken) {
		// another call with this key was faster, or the same call was left by its client: it
		// is one purchase
		result, done, err := e.takeUp(ctx, in, taken.Payment)
		if !done && err == nil {
			err = endedMeanwhile()
		}
		return result, err
	}
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if errors.Is(err, errRecounted) {
			found.keepChannel(p)
		}
		p.End(err == nil && r.Status != StatusUnserved)
	}()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Patience(p.Payment))
	defer cancel()
	defer e.watch(caller, p.Payment.ID)()
	return e.send(ctx, in, p.Payment, false)
}

func endedMeanwhile() error {
	return x402.Errorf(x402.PayFailed, "the payment that this call is for ended without having happened "+
		"while it was waited for; make the call again")
}

// prepare holds the money of the best option, has a float moved where that is needed, and has it signed for.
// Some reasons against an option, as a token that is paused, the chain shows only when it is looked at for
// the signature: then nothing was signed, the hold has ended, and the next option is taken.
func (e *Engine) prepare(ctx, caller context.Context, in intent, found *quote) (*Purchase, error) {
	for {
		p, err := found.held, error(nil)
		found.held = nil
		if p == nil {
			p, err = e.hold(ctx, caller, in, found)
		}
		if err != nil {
			return nil, err
		}
		reached(ctx, StageHeld, p.Payment)
		err = p.askHook(ctx) // before a float is moved for it
		if err == nil {
			err = e.fund(ctx, p)
		}
		if err == nil {
			err = p.sign(ctx, found.challenge)
		}
		if err == nil {
			return p, nil
		}
		var byOwner *hookError
		isRefused := errors.As(err, &byOwner)
		err = p.NotSent(ctx, err)
		p.End(false)
		if isRefused || !p.hasEnded(ctx) || !found.passOver(p.option, x402.AsError(err)) {
			return nil, err
		}
	}
}

// hasEnded reports whether the ledger says that the purchase holds nothing any more.
func (p *Purchase) hasEnded(ctx context.Context) bool {
	now, err := p.engine.Store.Payment(ctx, p.Payment.ID)
	return err == nil && now.State == history.Failed
}

// passOver notes why an option is not paid after all; false: it is not the option's fault.
func (q *quote) passOver(o option, why *x402.Error) bool {
	if !aboutOption(why.Code) {
		return false
	}
	for i := range q.options {
		if q.options[i].Index == o.Index {
			q.options[i].why = why
		}
	}
	return true
}

// deferred reports whether the seller is paid with a later request.
func (e *Engine) deferred(ctx context.Context, in intent) (service string, ok bool) {
	if e.Deferred == nil || in.Method == seller.Initialize { // being let in is always paid by x402
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
	return e.mayAsk(ctx, r, HostOf(r.URL))
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
	return e.Rules.CheckHost(AgentFrom(ctx), host)
}
