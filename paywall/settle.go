package paywall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/internal/steps"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// settlePayment settles the payment; from then on the sale continues even if the buyer disconnects. It
// returns true once the payment is settled.
func (s *saleRun) settlePayment(ctx context.Context) bool {
	if err := s.runHook(ctx, s.options.Hooks.BeforeSettle); err != nil {
		s.stop(err)
		return false
	}
	ctx = context.WithoutCancel(ctx)
	s.takeCharge()
	s.row.State = book.SaleSettling
	if encode := s.out.toolResult.encode; encode != nil && s.row.Identifier != "" {
		s.row.Answer = encode()
	}
	canRetry := s.row.Identifier != "" && (s.upfront || s.row.Answer != nil)
	if !canRetry && s.isAbandoned != nil && s.isAbandoned() {
		s.run = cancelled
		s.explain(nil, "the buyer hung up; nothing was settled")
		return false
	}
	if err := s.options.Store.MoveSale(ctx, s.row); err != nil {
		s.run = stopped
		s.explain(fmt.Errorf("%w: %w", errBook, err),
			"the book of sales cannot be written; nothing was settled")
		return false
	}
	settling, step := steps.Begin(ctx, steps.Settle)
	said := s.settleNow(settling)
	step.End(said.Err)
	s.settlement = s.outcomeOf(ctx, said)
	s.row.Facilitator = said.Facilitator
	s.out.settlement = s.buyerSettlement(said.Settlement)
	s.row.Transaction = s.out.settlement.Transaction
	if s.settlement == unknown && s.resolveOnChain(ctx, &s.row) {
		s.settlement = notSent
		s.out.settlement = s.buyerSettlement(nil)
		if s.row.State == book.SaleSettled {
			s.settlement = settled
			s.out.settlement.Success = true
			s.out.settlement.Transaction = s.row.Transaction
			s.out.settlement.ErrorReason = ""
		}
	}
	s.sale.Settlement = s.out.settlement
	s.explainSettlement(said.Err)
	if s.settlement == settled && s.upfront {
		s.row.State = book.SaleSettled
		s.writeSale(ctx)
	}
	return s.settlement == settled
}

// settleNow has the payment settled; what costs nothing is.
func (s *saleRun) settleNow(ctx context.Context) facilitator.Result {
	s.out.isFree = s.settlesNothing()
	if s.out.isFree {
		return facilitator.Result{Outcome: facilitator.Settled, Settlement: &wire.Settlement{Success: true}}
	}
	if s.signed.Tab != nil {
		counted := s.signed.Tab.Settle(ctx, s.submission, &s.row)
		s.out.extra = counted.Extra
		if counted.Outcome == facilitator.Settled && s.claimAbove > 0 {
			s.wakeClaims() // enough may be owed now
		}
		return counted.Result
	}
	submission := s.submission()
	if s.sale.meter != nil {
		submission.Requirements = charging(submission.Requirements, s.row.Amount)
	}
	return s.settler(s.offer.option).Settle(ctx, submission)
}

// outcomeOf is what a facilitator's answer means for the sale. Where a refusal proves nothing
// (selling.Traits.DoubtsRefusals) the chain is asked: what came by the payment, came before this facilitator
// was asked; and unless its nonce is unused, it may still have paid. And a facilitator that says it took
// another amount than it was asked to is not believed.
func (s *saleRun) outcomeOf(ctx context.Context, said facilitator.Result) settleOutcome {
	outcome := settleOutcomeOf(said)
	isOther := s.sale.meter != nil && said.Settlement != nil && said.Settlement.Amount != "" &&
		said.Settlement.Amount != s.row.Amount.String()
	switch {
	case outcome == settled && isOther:
		return unknown
	case outcome != refused || !s.offer.Way.Traits().DoubtsRefusals:
		return outcome
	case s.options.Received == nil:
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, s.confirmTimeout)
	defer cancel()
	status, err := s.options.Received(ctx, s.evidence(s.row))
	switch {
	case err == nil && status.State == x402.Settled:
		return elsewhere
	case err == nil && (status.Unused || status.State == x402.Expired):
		return refused
	}
	return unknown
}

// evidence is what the chain is asked by, what became of a sale's payment.
func (s *saleRun) evidence(row book.Sale) x402.Evidence {
	e := s.signed.Evidence
	if s.offer.Way.Traits().IsMetered {
		e.Amount = row.Amount
	}
	return e
}

func settleOutcomeOf(said facilitator.Result) settleOutcome {
	switch {
	case said.Outcome == facilitator.Settled:
		return settled
	case said.Outcome == facilitator.Refused:
		return refused
	case said.Outcome == facilitator.NotSent:
		return notSent
	case said.UsedBefore:
		return elsewhere
	default:
		return unknown
	}
}

// explainSettlement tells the buyer why the payment was not settled, and whether to pay again.
func (s *saleRun) explainSettlement(err error) {
	switch s.settlement {
	case notSent, unknown:
		if s.signed.Tab != nil {
			s.explain(err, cmp.Or(s.row.Note, "no facilitator settled it; nothing was charged"))
			return
		}
	}
	switch s.settlement {
	case refused:
		// the reference server's words
		s.explain(err, "Payment settlement failed: "+x402.Brief(s.out.settlement.ErrorReason))
	case notSent:
		s.explain(err, cmp.Or(s.row.Note, "no facilitator could be reached")+"; nothing was settled")
	case elsewhere:
		s.explain(err, "this payment was used before it could be settled here; it buys nothing")
	case unknown:
		reason := "whether the payment was settled is not known yet: do not pay again"
		// without one, the payer cannot be distinguished from a reader of the chain
		if s.row.Identifier != "" {
			reason += "; the same call with the same payment can be made again"
		}
		s.explain(err, reason)
	}
}

// buyerSettlement is a facilitator's settlement as the buyer gets it: with everything that the
// format requires.
func (s *saleRun) buyerSettlement(said *wire.Settlement) *wire.Settlement {
	given := wire.Settlement{ErrorReason: "unexpected_settle_error"}
	if said != nil {
		given = *said
	}
	given.Network = s.offer.terms[s.payment.Version].NetworkName
	if given.Payer == "" {
		given.Payer = s.signed.Payer
	}
	if given.Success {
		given.ErrorReason, given.ErrorMessage = "", ""
	}
	if s.sale.meter != nil {
		given.Amount = s.row.Amount.String()
	}
	if given.Success && s.settlement == unknown { // a success without proof (facilitator.judge, row 4)
		given.Success = false
		given.ErrorReason = "settlement_pending"
	}
	return &given
}

// resolveOnChain asks the chain about a settlement that a facilitator left open, until the chain
// knows, the payment has expired, or confirmTimeout is over. True: row says what the chain proved.
func (s *saleRun) resolveOnChain(ctx context.Context, row *book.Sale) bool {
	if s.options.Received == nil || s.signed.Evidence.Network == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.confirmTimeout)
	defer cancel()
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		status, err := s.options.Received(ctx, s.evidence(*row))
		switch {
		case err == nil && status.State == x402.Settled && !s.isOfThisSale(*row, status.Transaction):
			s.log.Warn("a payment came by another transaction than this sale's", "sale", row.ID,
				"transaction", status.Transaction, "sales", row.Transaction)
			return false
		case err == nil && status.State == x402.Settled:
			row.State, row.Transaction = book.SaleSettled, status.Transaction
			row.Note = "confirmed on chain"
			proved := result{settlement: &wire.Settlement{Success: true, Transaction: status.Transaction,
				Network: s.offer.terms[s.payment.Version].NetworkName, Payer: s.signed.Payer}}
			row.Receipt = proved.receiptJSON()
			return true
		case err == nil && status.State == x402.Expired:
			row.State = book.SaleFailed
			row.Note = "the chain shows that the payment did not come, and cannot"
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// isOfThisSale reports whether a payment that the chain found in transaction was made for this sale: in the
// transaction that the facilitator named, or, if it named none, in any. A book has one sale per payment;
// but if others sell for the same address, the payment may belong to a sale of theirs.
func (s *saleRun) isOfThisSale(row book.Sale, transaction string) bool {
	switch {
	case row.Transaction == "":
		return !s.options.SharedPayTo
	case x402.IsSolana(row.Network):
		return row.Transaction == transaction
	}
	return strings.EqualFold(row.Transaction, transaction)
}

// finish records how the request ended, and calls the last hooks.
func (s *saleRun) finish(ctx context.Context) result {
	ctx = context.WithoutCancel(ctx)
	v := s.out.verdict
	if v.answer == deliver && v.receipt && s.out.statements == nil {
		s.signReceipt()
	}
	ctx, step := steps.Begin(ctx, steps.Record)
	defer step.End(nil)
	switch {
	case s.row.ID == "": // no sale was opened
	case v.answer == inputRequired && v.state == "":
		if err := s.options.Store.DropSale(ctx, s.row.ID); err != nil {
			s.log.Error("delete a sale", "sale", s.row.ID, "err", err)
		}
	default:
		s.row.State = v.state
		s.writeSale(ctx)
	}
	s.note(ctx)
	if s.signed.Tab != nil {
		s.signed.Tab.Release(ctx, s.row.ID)
	}
	hooks := &s.options.Hooks
	if hooks.AfterSettle != nil && s.settlement != notSettled {
		_ = s.callHook(func() error { hooks.AfterSettle(ctx, s.sale); return nil })
	}
	err := v.err
	switch cause := s.out.cause; {
	case cause == nil || err == nil:
	case errors.Is(cause, err):
		err = cause
	default:
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if hooks.Ended != nil {
		_ = s.callHook(func() error { hooks.Ended(ctx, s.sale, err); return nil })
	}
	if v.answer == unavailable {
		s.log.Warn("a sale failed", "tool", s.tool.label(), "sale", s.sale.ID, "err", err)
	}
	return s.out
}

// writeSale stores the sale with its receipt, and with the answer if the buyer can ask for it again.
func (s *saleRun) writeSale(ctx context.Context) {
	s.row.Note = s.out.reason
	if st := s.out.settlement; st != nil {
		s.row.Transaction = st.Transaction
		s.row.Receipt = s.out.receiptJSON()
	}
	isPaid := s.row.State == book.SaleSettled || s.row.State == book.SaleUnknown // or may be
	mayBeReplayed := s.row.Identifier != "" && isPaid
	if encode := s.out.toolResult.encode; encode != nil && mayBeReplayed {
		s.row.Answer = encode()
	}
	if err := s.options.Store.MoveSale(ctx, s.row); err != nil {
		s.log.Error("write down a sale", "sale", s.row.ID, "state", s.row.State, "transaction",
			s.row.Transaction, "err", err)
	}
}

// runHook calls a hook that can stop the sale.
func (s *saleRun) runHook(ctx context.Context, hook func(context.Context, *Sale) error) error {
	if hook == nil {
		return nil
	}
	if err := s.callHook(func() error { return hook(ctx, s.sale) }); err != nil {
		return fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return nil
}

// callHook calls a hook and turns its panic into an error.
func (s *saleRun) callHook(hook func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a hook panicked", "tool", s.tool.label(), "stack", string(debug.Stack()))
			err = errors.New("a hook panicked")
		}
	}()
	return hook()
}

// receipt is an x402.Settlement as a SettleResponse, which buyers get.
type receipt struct {
	Success      bool            `json:"success"`
	Transaction  string          `json:"transaction"`
	Network      string          `json:"network"`
	Payer        string          `json:"payer,omitempty"`
	Amount       string          `json:"amount,omitempty"`
	ErrorReason  string          `json:"errorReason,omitempty"`
	ErrorMessage string          `json:"errorMessage,omitempty"`
	Extra        json.RawMessage `json:"extra,omitempty"`
	Extensions   json.RawMessage `json:"extensions,omitempty"`
}

func (r result) receiptJSON() json.RawMessage {
	s := r.settlement
	return jsonOf(receipt{Success: s.Success, Transaction: s.Transaction, Network: s.Network, Payer: s.Payer,
		Amount: s.Amount, ErrorReason: x402.Brief(s.ErrorReason), ErrorMessage: x402.Brief(s.ErrorMessage),
		Extra: r.extra, Extensions: r.statements})
}
