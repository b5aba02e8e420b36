package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/x402"
)

// Sale is one paid call, as hooks and the tool see it (FromContext). Only the wall writes to it.
type Sale struct {
	ID          string // in the book; "" before the payment is taken
	Tool        string
	Resource    string
	Call        Call
	Payment     json.RawMessage  // the PaymentPayload, as it was shown
	Requirement x402.Requirement // the option it pays
	Price       string           // for people: "$0.01"
	Symbol      string
	Payer       string // "" where it cannot be told before the settlement
	Verified    bool   // a facilitator says that the payment is good
	Expires     time.Time
	Settlement  *x402.Settlement // what the facilitator said; nil before
}

type saleKey struct{}

// FromContext is the sale that a tool runs for; nil when the call is free.
func FromContext(ctx context.Context) *Sale {
	sale, _ := ctx.Value(saleKey{}).(*Sale)
	return sale
}

// request is one call of something that costs, whatever it came by.
type request struct {
	tool     *tool
	call     Call
	resource string
	bind     [32]byte                 // of what is called: what a payment is shown for
	show     func() (*payment, error) // nil, nil: none
	do       func(context.Context) (goods, error)
}

// goods is what a tool gave.
type goods struct {
	value  any
	failed bool
	more   bool          // it wants an answer of the client's first
	keep   func() []byte // how it is written down for who loses it; nil is never
}

// result is how a request ended.
type result struct {
	verdict
	goods      goods
	kept       []byte // row 4: what goods.keep wrote
	why        string // for the buyer
	cause      error
	offers     []offer
	settlement *x402.Settlement
	sale       *Sale
	version    int // the buyer's
}

// selling is a request on its way.
type selling struct {
	*Wall
	request
	facts
	payment *payment
	offer   offer
	signed  signed
	sale    *Sale
	row     history.Sale
	out     result
}

// sell takes one request to its end. The order of its steps is the safety argument: what is asked
// now; is a payment shown, and is it for this; had it its run; does a facilitator vouch for it;
// only one opens its sale; the tool runs, with no more time than the payment has; the intention to
// settle is on disk before it is asked for; settled; written down; given.
func (w *Wall) sell(ctx context.Context, r request) result {
	s := &selling{Wall: w, request: r, sale: &Sale{Tool: r.tool.Name, Resource: r.resource, Call: r.call}}
	s.upfront, s.dry = r.tool.Upfront && !w.options.VerifyOnly, w.options.VerifyOnly
	s.out.sale, s.out.version = s.sale, w.options.Version
	if !w.enter() {
		s.out.verdict, s.out.why = verdict{answer: regrets, err: ErrAborted}, "the server is stopping"
		return s.out
	}
	defer w.sales.Done()
	var err error
	if s.out.offers, err = w.offers(ctx, r.tool, r.call, r.resource); err != nil {
		s.out.verdict, s.out.cause, s.out.why = verdict{answer: regrets, err: ErrPrice}, err,
			"what this costs cannot be told at the moment"
		return s.end(ctx)
	}
	if s.read(ctx) && s.verify(ctx) && s.open(ctx) {
		if s.upfront {
			_ = s.collect(ctx) && s.runs(ctx)
		} else {
			_ = s.runs(ctx) && !s.dry && s.collect(ctx)
		}
	}
	s.out.verdict = judge(s.facts)
	return s.end(ctx)
}

// say notes why, for the buyer and the log.
func (s *selling) say(err error, why string) {
	s.out.cause, s.out.why = err, clip(why)
}

// read looks at what was shown. False: that decides.
func (s *selling) read(ctx context.Context) bool {
	p, err := s.show()
	switch {
	case err != nil:
		s.shown = garbled
		s.say(err, err.Error())
		return false
	case p == nil:
		s.say(nil, s.unpaid())
		return false
	}
	s.payment, s.out.version = p, p.version
	s.sale.Payment = p.raw
	if s.offer, s.signed, err = s.match(p, s.out.offers); err == nil && p.version == 2 {
		err = p.echoed(s.declared(s.tool))
	}
	if errors.Is(err, errExpired) && s.wasUsed(ctx) {
		// who paid, and asks for the answer late, is not asked to pay again
		s.shown = readable
		return false
	}
	if err != nil {
		if s.shown = other; errors.Is(err, ErrInvalidRequest) {
			s.shown = garbled
		}
		s.say(err, err.Error())
		return false
	}
	s.shown = readable
	s.sale.Requirement, s.sale.Payer, s.sale.Expires = s.offer.in(p.version), s.signed.payer, s.signed.expires
	s.sale.Price, s.sale.Symbol = s.offer.Price.Price(), s.offer.Asset.Symbol
	return !s.wasUsed(ctx)
}

// wasUsed looks the payment up in the book. True: that decides.
func (s *selling) wasUsed(ctx context.Context) bool {
	earlier, err := s.options.Book.SaleOf(ctx, s.signed.trace)
	switch {
	case errors.Is(err, history.ErrNoSale):
		return false
	case err != nil:
		s.check = silent
		s.say(fmt.Errorf("%w: %w", ErrLedger, err),
			"the book of sales cannot be read; the payment was not used")
	default:
		s.again(ctx, earlier)
	}
	return true
}

// again is for a payment that had its run. Who names it as the buyer did, for the same call, gets
// what it bought once more: then an answer that was lost on its way is not paid for twice. The name
// is what only the buyer knows: the payment itself is on the chain for everybody to read.
func (s *selling) again(ctx context.Context, earlier history.Sale) {
	s.used = before
	id := s.payment.identifier()
	if id == "" || id != earlier.Identifier || s.bind != earlier.Call {
		s.say(nil, "this payment has been used; it buys one call")
		return
	}
	// by a process that is no more
	left := earlier.State == history.Settling && s.now().Sub(earlier.Updated) > s.leftTime
	if (left || earlier.State == history.InDoubt) && s.inDoubt(ctx, &earlier) {
		_ = s.options.Book.MoveSale(context.WithoutCancel(ctx), earlier)
	}
	switch {
	case earlier.State == history.Sold && earlier.Answer != nil:
		s.used, s.out.kept, s.sale.ID = kept, earlier.Answer, earlier.ID
		s.out.settlement, _ = x402.DecodeSettlement(earlier.Receipt)
	case earlier.State == history.Running || earlier.State == history.Settling:
		s.say(nil, "this payment is being used by another call; the same call will be answered when that "+
			"one is over")
	default:
		s.say(nil, "this payment has been used, and what it bought is not kept ("+string(earlier.State)+")")
	}
}

// verify asks a facilitator.
func (s *selling) verify(ctx context.Context) bool {
	if err := s.hook(ctx, s.options.Hooks.BeforeVerify); err != nil {
		s.check = invalid
		s.say(err, "this payment is not taken")
		return false
	}
	good, reason, err := s.options.Facilitators.Verify(ctx, s.submission())
	switch {
	case err != nil:
		s.check = silent
		s.say(err, "no facilitator could verify the payment; it was not used")
	case !good && s.wasUsed(ctx): // and settled while the facilitator was asked
	case !good:
		s.check = invalid
		s.say(fmt.Errorf("%w: %s", ErrPaymentRejected, reason), reason)
	default:
		s.sale.Verified = true
		if err := s.hook(ctx, s.options.Hooks.AfterVerify); err != nil {
			s.check = invalid
			s.say(err, "this payment is not taken")
			return false
		}
		s.check = valid
		return true
	}
	return false
}

func (s *selling) submission() facilitator.Submission {
	r := s.offer.in(s.payment.version)
	return facilitator.Submission{Network: s.offer.Network, Version: s.payment.version,
		Payload: s.payment.raw, Requirements: r.Raw,
		Validity: s.signed.expires.Sub(s.now()), Sticky: x402.IsSolana(s.offer.Network),
		FeePayer: r.ExtraString("feePayer")}
}

// open takes the payment: whoever comes later with it finds it used.
func (s *selling) open(ctx context.Context) bool {
	o := s.offer
	row, err := s.options.Book.OpenSale(ctx, history.Sale{
		UniqueKey: s.signed.trace, Resource: s.resource, Call: s.bind, Identifier: s.payment.identifier(),
		Network: o.Network, Scheme: "exact",
		Asset: o.Asset.Address, Symbol: o.Asset.Symbol, Amount: o.Amount, Price: o.Price, PayTo: o.PayTo,
		Payer:       s.signed.payer,
		Requirement: o.in(s.payment.version).Raw, Payload: s.payment.raw,
	})
	var sold *history.SoldBefore
	switch {
	case errors.As(err, &sold):
		s.again(ctx, sold.Sale)
		return false
	case err != nil:
		s.check = silent
		s.say(fmt.Errorf("%w: %w", ErrLedger, err),
			"the book of sales cannot be written; the payment was not used")
		return false
	}
	s.row, s.sale.ID = row, row.ID
	return true
}

// runs lets the tool work, for as long as the payment will still be good when it is settled.
func (s *selling) runs(ctx context.Context) bool {
	if err := s.hook(ctx, s.options.Hooks.BeforeRun); err != nil {
		s.run = stopped
		s.say(err, "the call was stopped")
		return false
	}
	s.run = s.work(ctx)
	if s.run == ran || s.run == failed {
		err := s.hook(ctx, func(ctx context.Context, sale *Sale) error {
			if s.options.Hooks.AfterRun == nil {
				return nil
			}
			return s.options.Hooks.AfterRun(ctx, sale, s.run == failed)
		})
		if err != nil && s.run == ran {
			s.run = stopped
			s.say(err, "the call was stopped")
		}
	}
	return s.run == ran
}

// work runs the tool in a goroutine of its own, because one that does not heed its context must not
// outlive the payment.
func (s *selling) work(ctx context.Context) run {
	limit := s.signed.expires.Sub(s.now()) - s.settleTime
	if s.upfront {
		limit = longTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, saleKey{}, s.sale), limit)
	defer cancel()
	type end struct {
		goods goods
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("a tool panicked", "tool", s.tool.Name, "stack", string(debug.Stack()))
				e = end{err: errors.New("the tool met an error of its own")}
			}
			ended <- e
		}()
		e.goods, e.err = s.do(ctx)
	}()
	var e end
	select {
	case e = <-ended:
	case <-ctx.Done():
		select { // at the same moment: what it made is there
		case e = <-ended:
		default:
			e.err = ctx.Err()
		}
	}
	s.out.goods = e.goods
	switch {
	case e.err == nil && e.goods.more:
		return asksMore
	case e.err == nil && e.goods.failed:
		s.say(nil, "the tool failed")
		return failed
	case e.err == nil:
		return ran
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.say(e.err, fmt.Sprintf("the tool took longer than the payment is good for (%s less %s to settle "+
			"it); nothing was settled", s.tool.MaxTimeout, s.settleTime))
		return late
	case ctx.Err() != nil:
		s.say(e.err, "the call was cancelled; nothing was settled")
		return gone
	default:
		s.out.goods = goods{value: e.err, failed: true}
		s.say(e.err, "the tool failed")
		return failed
	}
}
