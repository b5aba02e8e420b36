package paywall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/internal/steps"
	"x402-wallet/paywall/book"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Sale is one paid call, as hooks and the tool see it (FromContext). Only the paywall writes to it, and
// only between the calls of hooks and tool: it may be read during such a call, and must not be kept.
type Sale struct {
	ID          string // in the sale store; "" before the payment is taken
	Tool        string // its name; "resource <URI>", "prompt <name>" or "entry"
	Resource    string
	Call        Call
	Payment     json.RawMessage  // the PaymentPayload, as it was presented
	Requirement x402.Requirement // the option it pays
	Price       string           // for people: "$0.01"; of the scheme upto the ceiling
	Symbol      string
	Payer       string // "" where it is not known before the settlement
	Verified    bool   // a facilitator says that the payment is valid
	SignedIn    bool   // nothing is paid: Payer bought it before, and signed in
	Expires     time.Time
	Settlement  *wire.Settlement // what the facilitator said; nil before

	meter *meter // what the call costs, where that is known when it has run; nil: Price
}

type saleKey struct{}

// FromContext returns the sale that a tool runs for; nil when the call is free.
func FromContext(ctx context.Context) *Sale {
	sale, _ := ctx.Value(saleKey{}).(*Sale)
	return sale
}

// request is one call of something that costs, over MCP or HTTP.
type request struct {
	tool     *tool
	call     Call
	resource string
	// of resource and arguments: a stored answer is replayed for the same call only
	callHash    [32]byte
	decode      func() (*payment, error) // the payment that came with it; nil, nil: none
	signIn      string                   // the sign-in that came with it; "": none
	invoke      func(context.Context) (toolResult, error)
	traceparent string      // of its sender; "": it named no trace
	isAbandoned func() bool // the buyer hung up without the call being cancelled; nil: it is always cancelled
	// acknowledge is an answer of ours in the place of the tool's
	acknowledge func(said map[string]any) toolResult
}

type toolResult struct {
	value      any
	failed     bool
	needsInput bool          // it asks the client something first
	encode     func() []byte // how it is stored, in case its answer is lost on the way; nil: it is not
	// what it says that the call costs ("": it says nothing), and how many bytes it has; nil: no answer
	usage func() (said string, size func() int)
}

// result is how a request ended.
type result struct {
	verdict
	toolResult toolResult
	replayed   []byte // row 4: what toolResult.encode wrote
	reason     string // for the buyer
	cause      error
	offers     []offer
	settlement *wire.Settlement
	statements json.RawMessage // the extensions of its receipt: a signed one; nil: none
	extra      json.RawMessage // what its receipt says of the tab
	tab        selling.Tab     // nil where the payment is settled by itself
	sale       *Sale
	version    int  // the buyer's
	byProtocol bool // the payment came in another protocol than x402
	isFree     bool // it was metered, and cost nothing
}

// saleRun is a running request, handled by one goroutine.
type saleRun struct {
	*Paywall
	request
	facts
	payment    *payment
	unreadable error // why there is none
	offer      offer
	signed     selling.Signed
	sale       *Sale
	row        book.Sale
	out        result
}

// sell takes one request to its end. The order of its steps is the safety argument:
//
//  1. what the call costs now;
//  2. whether a payment came with it, whether it is for this, and whether it had its run, as far as this
//     process saw (seen.go); or whether its buyer signs in as who bought it, once for each message: then it
//     runs, and that is all;
//  3. whether a facilitator verifies it; one that it does not verify may have had its run elsewhere;
//  4. the sale is opened, in one transaction: of all who present this payment only one gets past here;
//  5. the tool runs, with no more time than the payment has;
//  6. the intention to settle is on disk before the facilitator is asked to settle;
//  7. the settlement is written down, and only then the answer is given.
func (w *Paywall) sell(ctx context.Context, r request) (out result) {
	ctx, recorder := w.observed(ctx, r)
	defer func() { w.report(recorder, out) }()
	s := &saleRun{Paywall: w, request: r,
		sale: &Sale{Tool: r.tool.label(), Resource: r.resource, Call: r.call}}
	s.verifyOnly = w.options.VerifyOnly
	s.upfront = r.tool.Upfront && !s.verifyOnly
	s.out.sale, s.out.version = s.sale, w.options.Version
	if !w.begin() {
		s.out.verdict = verdict{answer: unavailable, err: ErrAborted}
		s.out.reason = "the server is stopping"
		return s.out
	}
	defer w.end()
	var err error
	s.payment, s.unreadable = s.decode()
	if s.unreadable != nil {
		s.payment = nil
	}
	offering, step := steps.Begin(ctx, steps.Offer)
	s.out.offers, err = w.offers(offering, r.tool, r.call, r.resource, s.payment)
	step.End(err)
	if err != nil {
		s.out.verdict = verdict{answer: unavailable, err: ErrPrice}
		s.explain(err, "the price is not known at the moment")
		return s.finish(ctx)
	}
	switch {
	case s.payment == nil && s.unreadable == nil && s.request.signIn != "" && r.tool.Access > 0:
		if s.signInAsBuyer(ctx) {
			s.runTool(ctx)
		}
	case !s.readPayment(ctx) || !s.verify(ctx):
	case s.signed.IsRefund():
		s.refund(ctx)
	case s.openSale(ctx):
		s.runAndSettle(ctx)
	}
	s.out.verdict = judge(s.facts)
	return s.finish(ctx)
}

// runAndSettle runs the tool and settles the payment, in the order that the tool's owner chose.
func (s *saleRun) runAndSettle(ctx context.Context) {
	if s.upfront {
		if s.settlePayment(ctx) {
			s.runTool(ctx)
		}
		return
	}
	if s.runTool(ctx) && !s.verifyOnly {
		s.settlePayment(ctx)
	}
}

// explain records the reason, for the buyer and the log.
func (s *saleRun) explain(err error, reason string) {
	s.out.cause = err
	s.out.reason = clip(reason)
}

// bookFailed ends a request whose payment was not used.
func (s *saleRun) bookFailed(err error, reason string) {
	s.verification = noAnswer
	s.explain(fmt.Errorf("%w: %w", errBook, err), reason)
}

// readPayment reads what the buyer presented. False: the request ends here.
func (s *saleRun) readPayment(ctx context.Context) bool {
	p, err := s.payment, s.unreadable
	switch {
	case err != nil:
		s.presented = unreadable
		s.explain(err, err.Error())
		return false
	case p == nil:
		s.explain(nil, s.unpaidMessage())
		return false
	}
	s.out.version = p.Version
	s.offer, s.signed, err = s.match(p, s.out.offers)
	s.sale.Payment, s.out.byProtocol, s.out.tab = p.raw, p.answer != nil, s.signed.Tab
	if err == nil && p.Version == 2 && len(p.Extensions) > 0 {
		err = p.checkExtensions(s.declaredExtensions(s.tool, s.out.offers))
	}
	if (err == nil || errors.Is(err, selling.ErrExpired)) && !s.signed.IsRefund() {
		err = cmp.Or(p.readIdentifier(s.tool), err)
	}
	// A buyer that paid in time and asks for a lost answer after the expiry is not asked to pay again.
	if errors.Is(err, selling.ErrExpired) && s.isUsed(ctx) {
		s.presented = matching
		return false
	}
	if err != nil {
		s.presented = mismatched
		if errors.Is(err, ErrInvalidRequest) {
			s.presented = unreadable
		}
		s.explain(err, err.Error())
		return false
	}
	s.presented = matching
	s.sale.Requirement = s.offer.terms[p.Version]
	s.sale.Payer, s.sale.Expires = s.signed.Payer, s.signed.Expires
	s.sale.Price, s.sale.Symbol = s.offer.Price.Price(), s.offer.Asset.Symbol
	if s.offer.Way.Traits().IsMetered {
		s.sale.meter = &meter{asset: s.offer.Asset, ceiling: s.offer.Amount}
	}
	if s.signed.Tab != nil {
		return s.count(ctx)
	}
	return !s.seen.has(s.signed.UniqueKey) || !s.isUsed(ctx)
}

// isUsed looks the payment up in the sale store. True: the request ends here.
func (s *saleRun) isUsed(ctx context.Context) bool {
	earlier, err := s.options.Store.SaleByKey(ctx, s.signed.UniqueKey)
	switch {
	case errors.Is(err, book.ErrNotFound):
		return false
	case err != nil:
		s.bookFailed(err, "the book of sales cannot be read; the payment was not used")
	default:
		s.seen.add(earlier.UniqueKey)
		s.replay(ctx, earlier)
	}
	return true
}

// replay answers a payment that had its run. The same call with the same payment-identifier gets
// what it bought once more, so that an answer which was lost on its way is not paid for twice. Only
// the buyer knows that identifier; the payment itself is on the chain for everybody to read, and
// proves nothing.
func (s *saleRun) replay(ctx context.Context, earlier book.Sale) {
	s.priorUse = alreadyUsed
	switch id := s.payment.name; {
	case s.signed.UniqueKey != earlier.UniqueKey && s.callHash != earlier.Call:
		s.explain(nil, "this payment-identifier names another call, which was paid for; nothing was settled")
		return
	case id == "" || id != earlier.Identifier || s.callHash != earlier.Call:
		s.explain(nil, "this payment has been used; it buys one call")
		return
	}
	// The process that was settling it has died.
	isAbandoned := earlier.State == book.SaleSettling && s.now().Sub(earlier.Updated) > s.abandonedAfter
	isOpen := (isAbandoned || earlier.State == book.SaleUnknown) && s.payment.isSignedAs(earlier.Payload)
	if isOpen && s.resolveOnChain(ctx, &earlier) {
		_ = s.options.Store.MoveSale(context.WithoutCancel(ctx), earlier)
	}
	switch {
	case earlier.State == book.SaleSettled && earlier.Answer != nil:
		s.priorUse = replayable
		s.out.replayed = earlier.Answer
		s.sale.ID = earlier.ID
		s.out.settlement, _ = wire.DecodeSettlement(earlier.Receipt)
		var stored receipt
		if json.Unmarshal(earlier.Receipt, &stored) == nil {
			s.out.statements, s.out.extra = stored.Extensions, stored.Extra
		}
	case earlier.State == book.SaleRunning || earlier.State == book.SaleSettling:
		s.explain(nil, "this payment is being used by another call; repeat this call when that one has ended")
	default:
		s.explain(nil, "this payment has been used, and its answer is not stored ("+string(earlier.State)+")")
	}
}

func (s *saleRun) verify(ctx context.Context) (isValid bool) {
	ctx, step := steps.Begin(ctx, steps.Verify)
	defer func() { step.EndAs(codeIf(!isValid, verifyCodes[s.verification])) }()
	if err := s.runHook(ctx, s.options.Hooks.BeforeVerify); err != nil {
		s.verification = invalid
		s.explain(err, refusalOr(err, "this payment is not accepted"))
		return false
	}
	said, err := s.settler(s.offer.option).Verify(ctx, s.submission())
	if err == nil && said.Valid && s.signed.Tab != nil {
		said.Reason, err = s.signed.Tab.Check(ctx, said.Extra)
		said.Valid = said.Reason == ""
	}
	switch {
	// it was settled while the facilitator was asked; or before, and was not looked up yet
	case !said.Valid && s.signed.Tab == nil && s.isUsed(ctx):
		return false
	case err != nil:
		s.verification = noAnswer
		s.explain(err, "no facilitator could verify the payment; it was not used")
		return false
	case !said.Valid:
		s.verification = invalid
		s.explain(fmt.Errorf("%w: %s", ErrPaymentRejected, said.Reason), said.Reason)
		return false
	}
	s.sale.Verified = true
	if err := s.runHook(ctx, s.options.Hooks.AfterVerify); err != nil {
		s.verification = invalid
		s.explain(err, refusalOr(err, "this payment is not accepted"))
		return false
	}
	s.verification = valid
	return true
}

func (s *saleRun) submission() facilitator.Submission {
	r := s.offer.terms[s.payment.Version]
	submission := facilitator.Submission{
		Network:      s.offer.Network,
		Version:      s.payment.Version,
		Payload:      s.payment.raw,
		Requirements: r.Raw,
		Validity:     s.signed.Expires.Sub(s.now()),
		Asset:        s.offer.Asset.Address,
		Symbol:       s.offer.Asset.Symbol,
		Price:        s.offer.Price,
	}
	if s.signed.Tab == nil {
		submission.Payer = s.signed.Payer
	}
	if key := s.offer.Way.SettlerIn(s.offer.Network); key != "" {
		submission.Sticky, submission.FeePayer = true, r.ExtraString(key)
	}
	return submission
}

// openSale takes the payment: every later request that presents it finds it used.
func (s *saleRun) openSale(ctx context.Context) (isOpen bool) {
	ctx, step := steps.Begin(ctx, steps.Take)
	defer func() { step.EndAs(codeIf(!isOpen, cmp.Or(verifyCodes[s.verification], codePaymentUsed))) }()
	o := s.offer
	open := s.options.Store.OpenSale
	if s.signed.Tab != nil {
		open = s.signed.Tab.Open
	}
	row, err := open(ctx, book.Sale{
		UniqueKey:   s.signed.UniqueKey,
		Resource:    s.resource,
		Call:        s.callHash,
		Identifier:  s.payment.name,
		Network:     o.Network,
		Scheme:      o.Way.Traits().Name,
		Asset:       o.Asset.Address,
		Symbol:      o.Asset.Symbol,
		Amount:      o.Amount,
		Price:       o.Price,
		PayTo:       o.PayTo,
		Payer:       s.signed.Payer,
		Requirement: o.terms[s.payment.Version].Raw,
		Payload:     s.payment.raw,
	})
	s.seen.add(s.signed.UniqueKey)
	var sold *book.AlreadySold
	switch {
	case errors.As(err, &sold):
		s.replay(ctx, sold.Sale)
		return false
	case err != nil:
		s.notCounted(err, "the book of sales cannot be written; the payment was not used")
		return false
	}
	s.row = row
	s.sale.ID = row.ID
	return true
}

// runTool runs the tool and the hooks around it. True: it succeeded.
func (s *saleRun) runTool(ctx context.Context) bool {
	if err := s.runHook(ctx, s.options.Hooks.BeforeRun); err != nil {
		s.stop(err)
		return false
	}
	running, step := steps.Begin(ctx, steps.Run)
	s.run = s.execute(running)
	step.EndAs(runCodes[s.run])
	if s.run == succeeded || s.run == failed {
		err := s.runHook(ctx, func(ctx context.Context, sale *Sale) error {
			if s.options.Hooks.AfterRun == nil {
				return nil
			}
			return s.options.Hooks.AfterRun(ctx, sale, s.run == failed)
		})
		if err != nil && s.run == succeeded {
			s.stop(err)
		}
	}
	return s.run == succeeded
}

// stop ends the sale because a hook refused.
func (s *saleRun) stop(err error) {
	s.run = stopped
	s.explain(err, refusalOr(err, "the call was stopped"))
}

// refusalOr is what a hook wants the buyer to read, or else a text.
func refusalOr(err error, text string) string {
	if refusal, ok := errors.AsType[Refusal](err); ok && refusal != "" {
		return clip(string(refusal))
	}
	return text
}

// execute runs the tool for as long as the payment will still be valid when it is settled, in a
// goroutine of its own: a tool that ignores its context must not outlive the payment.
func (s *saleRun) execute(ctx context.Context) runOutcome {
	limit := s.signed.Expires.Sub(s.now()) - s.settleMargin
	if s.upfront {
		limit = maxTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, saleKey{}, s.sale), limit)
	defer cancel()
	type ending struct {
		result toolResult
		err    error
	}
	ended := make(chan ending, 1)
	go func() {
		var e ending
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("a tool panicked", "tool", s.tool.label(), "stack", string(debug.Stack()))
				e = ending{err: errors.New("the tool met an error of its own")}
			}
			ended <- e
		}()
		e.result, e.err = s.invoke(ctx)
	}()
	var e ending
	select {
	case e = <-ended:
	case <-ctx.Done():
		select { // it may have ended at the same moment: then its result counts
		case e = <-ended:
		default:
			e.err = ctx.Err()
		}
	}
	s.out.toolResult = e.result
	switch {
	case e.err == nil && e.result.needsInput:
		return needsInput
	case e.err == nil && e.result.failed:
		s.explain(nil, "the tool failed")
		return failed
	case e.err == nil:
		return succeeded
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.explain(e.err, fmt.Sprintf("the tool took longer than the payment is valid (%s, less %s to "+
			"settle it); nothing was settled", s.tool.MaxTimeout, s.settleMargin))
		return tooLate
	case ctx.Err() != nil:
		s.explain(e.err, "the call was cancelled; nothing was settled")
		return cancelled
	default:
		s.out.toolResult = toolResult{value: e.err, failed: true}
		s.explain(e.err, "the tool failed")
		return failed
	}
}
