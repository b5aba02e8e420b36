package paywall

import (
	"context"

	"x402-wallet/internal/steps"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
)

// observed has the steps of a request noted, where somebody listens; else the recorder is nil.
func (w *Paywall) observed(ctx context.Context, r request) (context.Context, *steps.Recorder) {
	if w.options.Observe == nil {
		return ctx, nil
	}
	ctx = steps.Calling(ctx, "sale "+r.tool.label(), r.traceparent)
	ctx, recorder := steps.Start(ctx, steps.Sale, "", w.options.Traces)
	recorder.At("", r.tool.label())
	return ctx, recorder
}

// report tells whoever listens what a request came to.
func (w *Paywall) report(r *steps.Recorder, out result) {
	if r == nil {
		return
	}
	w.options.Observe(r.EndAs(outcomeOf(out), codes[out.err]))
}

// note says, to whoever listens, which sale a request came to, and how it now stands.
func (s *saleRun) note(ctx context.Context) {
	r, row := steps.From(ctx), s.row
	switch {
	case r == nil, s.sale.ID == "":
	case row.ID == "": // an earlier one, whose answer is given once more
		r.About(steps.Paid{PaymentID: s.sale.ID, State: string(book.SaleSettled)})
	default:
		r.About(steps.Paid{PaymentID: row.ID, Network: row.Network, Scheme: row.Scheme, Asset: row.Symbol,
			Amount: row.Amount, Price: row.Price, State: string(row.State)})
	}
}

// outcomeOf is what a request came to, in a word.
func outcomeOf(out result) string {
	switch {
	case out.replayed != nil:
		return "replayed"
	case out.answer == challenge && out.err != ErrPaymentRequired: //nolint:errorlint // as judge gives it
		return "refused"
	}
	return outcomes[out.answer]
}

var outcomes = map[answer]string{challenge: "asked", reject: "rejected", unavailable: "unavailable",
	toolFailed: "tool_failed", inputRequired: "input_required", deliver: "delivered"}

// codes are why a request ended without a sale, by judge's errors: x402's where it has one.
var codes = map[error]string{
	ErrPaymentRequired:     "", // it came without one, and was told the price
	ErrPaymentRejected:     string(x402.PaymentRejected),
	ErrInvalidRequest:      string(x402.InvalidArgument),
	ErrPaymentUsed:         codePaymentUsed,
	ErrVerifyUnavailable:   string(x402.FacilitatorError),
	ErrToolExecutionFailed: codeToolFailed,
	ErrTooLate:             codeTooLate,
	ErrGone:                steps.Cancelled,
	ErrAborted:             codeStopped,
	ErrSettlementFailed:    string(x402.SettlementFailed),
	ErrSettlementUnknown:   string(x402.OutcomeUnknown),
	ErrPrice:               "PRICE_UNKNOWN",
}

const (
	codePaymentUsed = "PAYMENT_USED"
	codeToolFailed  = "TOOL_FAILED"
	codeTooLate     = "TOO_LATE"
	codeStopped     = "STOPPED"
)

// verifyCodes and runCodes are why a step ended the request.
var (
	verifyCodes = map[verification]string{invalid: string(x402.PaymentRejected),
		noAnswer: string(x402.FacilitatorError)}
	runCodes = map[runOutcome]string{failed: codeToolFailed, stopped: codeStopped, tooLate: codeTooLate,
		cancelled: steps.Cancelled}
)

// codeIf is a step's code if it ended the request.
func codeIf(hasEnded bool, code string) string {
	if !hasEnded {
		return ""
	}
	return code
}
