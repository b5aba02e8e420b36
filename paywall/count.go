package paywall

import (
	"errors"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// Counted is what a request for something that is sold came to, in words of ours, for who counts.
type Counted struct {
	Tool    string // as the owner names it
	Outcome string // sold, verified, signed_in, replayed, unpaid, refused, unavailable, tool_failed or input_required
	Code    string // why it is none of the first four; "": for no reason of ours
	Network string
	Earned  money.Dollars // what was paid by it
	// how long verify, run and settle took; what was not done is missing
	Steps map[string]time.Duration
}

// The steps of Counted.
const (
	stepVerify = "verify" // a facilitator is asked whether the payment is valid
	stepRun    = "run"    // what was bought
	stepSettle = "settle" // the intention written down, settled, and where it is open looked up
)

// took notes a step that began then and has ended.
func (s *saleRun) took(step string, began time.Time) {
	if s.options.Count == nil {
		return
	}
	if s.steps == nil {
		s.steps = map[string]time.Duration{}
	}
	s.steps[step] += time.Since(began)
}

// counted tells who counts how the request ended.
func (s *saleRun) counted() {
	if s.options.Count == nil {
		return
	}
	c := Counted{Tool: s.tool.Name, Outcome: s.outcome(), Code: codeOf(s.out.err, s.out.cause), Steps: s.steps}
	if s.row.State == history.SaleSettled && !s.out.isFree {
		c.Network, c.Earned = s.row.Network, s.row.Price
	}
	s.options.Count(c)
}

// outcome is the answer, and of an answer that has what was asked for: why.
func (s *saleRun) outcome() string {
	switch s.out.answer {
	case challenge:
		if s.presented == noPayment {
			return "unpaid"
		}
		return "refused"
	case reject:
		return "refused"
	case toolFailed:
		return "tool_failed"
	case inputRequired:
		return "input_required"
	case deliver:
		switch {
		case s.priorUse == replayable:
			return "replayed"
		case s.presented == noPayment:
			return "signed_in"
		case s.settlement != settled:
			return "verified"
		}
		return "sold"
	}
	return "unavailable"
}

// codes are the errors that a sale can fail with, in words.
var codes = []struct {
	err  error
	code string
}{
	{errLedger, "LEDGER_UNAVAILABLE"}, // a cause of others
	{ErrPaymentRequired, "PAYMENT_REQUIRED"},
	{ErrInvalidRequest, "INVALID_REQUEST"},
	{ErrPaymentUsed, "PAYMENT_USED"},
	{ErrPaymentRejected, "PAYMENT_REJECTED"},
	{ErrVerifyUnavailable, "VERIFY_UNAVAILABLE"},
	{ErrToolExecutionFailed, "TOOL_EXECUTION_FAILED"},
	{ErrTooLate, "TOO_LATE"},
	{ErrGone, "GONE"},
	{ErrAborted, "ABORTED"},
	{ErrSettlementFailed, "SETTLEMENT_FAILED"},
	{ErrSettlementUnknown, "SETTLEMENT_UNKNOWN"},
	{ErrPrice, "PRICE_UNKNOWN"},
}

// codeOf is the word for why a request came to nothing; "": it did not.
func codeOf(err, cause error) string {
	if err == nil {
		return ""
	}
	for _, c := range codes {
		if errors.Is(err, c.err) || (c.err == errLedger && errors.Is(cause, errLedger)) {
			return c.code
		}
	}
	return ""
}
