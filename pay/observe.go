package pay

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/seller"
)

// observed has the steps of a call noted, where somebody listens; else the recorder is nil.
func (e *Engine) observed(ctx context.Context) (context.Context, *steps.Recorder) {
	if e.Observe == nil {
		return ctx, nil
	}
	traces := e.Traces
	if traces.PassOn && e.Guard.CheckConfig(ctx) != nil { // the owner did not say so
		traces.PassOn = false
	}
	return steps.Start(ctx, steps.Payment, AgentFrom(ctx), traces)
}

// report tells whoever listens what a call came to.
func (e *Engine) report(r *steps.Recorder, came Result, err error) {
	if r != nil {
		e.Observe(r.End(came.Status, err))
	}
}

// note says, to whoever listens, which payment a call is about, and how it now stands.
func note(ctx context.Context, p history.Payment) {
	if r := steps.From(ctx); r != nil {
		r.About(steps.Paid{PaymentID: p.ID, Network: p.Network, Scheme: p.Scheme, Asset: p.Symbol,
			Amount: p.Amount, Price: p.Price, State: string(p.State)})
	}
}

// ended is the end of a step in which a seller was asked.
func ended(step *steps.Span, answer *seller.Answer, err error) {
	if answer != nil {
		step.Answered(answer.Status)
	}
	step.End(err)
}
