package paywall

import (
	"context"
	"errors"

	"x402-wallet/paywall/book"
	"x402-wallet/scheme/selling"
)

// Payments that are counted in something of the buyer's that lasts (selling.Tab), instead of being settled by
// themselves. What is counted is the way's matter; here is where in a sale it is asked.

// count compares the payment with what was counted before. False: the request ends here.
func (s *saleRun) count(ctx context.Context) bool {
	if !s.signed.IsRefund() && s.isAskedAgain(ctx) {
		return false
	}
	err := s.signed.Tab.Count(ctx)
	if err != nil {
		s.notCounted(err, "the book of sales cannot be read; the payment was not used")
	}
	return err == nil
}

// isAskedAgain answers who asks once more for what this very payment bought, by its name.
func (s *saleRun) isAskedAgain(ctx context.Context) bool {
	if s.payment.name == "" {
		return false
	}
	earlier, err := s.options.Store.SaleByKey(ctx, s.signed.UniqueKey)
	isSame := err == nil && earlier.State == book.SaleSettled && earlier.Answer != nil &&
		earlier.Identifier == s.payment.name && earlier.Call == s.callHash
	if isSame {
		s.replay(ctx, earlier)
	}
	return isSame
}

// notCounted ends a request whose payment was refused, or where err is the book's, for a reason of ours.
func (s *saleRun) notCounted(err error, reason string) {
	refusal, isRefusal := errors.AsType[*selling.Refusal](err)
	if !isRefusal {
		s.bookFailed(err, reason)
		return
	}
	s.verification = invalid
	s.explain(refusal.Cause, refusal.Reason)
}

// refund gives back what is left of what the payment is counted in.
func (s *saleRun) refund(ctx context.Context) {
	back, err := s.signed.Tab.Refund(ctx, s.submission)
	if err != nil {
		s.notCounted(err, "the book of sales cannot be written; nothing was given back")
		return
	}
	s.settlement = settleOutcomeOf(back.Result)
	s.out.settlement = s.buyerSettlement(back.Settlement)
	s.sale.Settlement = s.out.settlement
	if s.settlement != settled {
		s.explainSettlement(back.Err)
		return
	}
	s.run, s.out.extra = succeeded, back.Extra
	s.out.toolResult = s.acknowledge(back.Answer)
}
