package pay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Deferred payments: sellers that serve a call first and are paid by a voucher with a later request
// (payment channels). Package scheme/nuwa speaks their protocol; this file holds, approves and records
// their money by the rules of every other payment. The order of the steps is the same too: the most
// that a call may cost is known before the call is made, its cost is held before a voucher is
// signed, and the signed voucher is on disk before it is sent.

// DialectChannel is in the ledger for what was bought through a payment channel.
const dialectChannel x402.Dialect = "channel"

// Charge is a call to such a seller, and what the seller charges for it: Amount is 0 as long
// as nobody knows.
type Charge struct {
	Network, PayTo string // the account with the seller that it goes to: see At
	Scheme         string
	Asset          x402.AssetInfo
	Funds          x402.Funds
	Amount         money.Amount  // in the asset's atomic units
	UpTo           *money.Amount // a person may have approved so much, before the price was known
	Always         string        // why a person is asked whatever it costs; "": they are not
	Requirement    json.RawMessage
	Refill         string // what the owner types to add to Funds

	in intent
}

// NewCharge reads a call's arguments, and refuses hosts that the owner does not allow.
func (e *Engine) NewCharge(ctx context.Context, q Request) (Charge, error) {
	in, err := q.parse(AgentFrom(ctx))
	if err != nil {
		return Charge{}, err
	}
	return Charge{in: in}, e.Rules.CheckHost(in.agent, in.host)
}

// Request is what is sent to the seller, without payment.
func (c Charge) Request() seller.Request { return c.in.Request.Request }

// At is the charge at an account with its seller. The same request paid in another way, or through
// another account, is another purchase.
func (c Charge) At(network, payTo string) Charge {
	c.Network, c.PayTo = network, payTo
	c.in.fingerprint = c.in.Request.fingerprint(c.in.agent, network+" "+payTo)
	return c
}

// ForEarlier is the charge of an earlier call, which the seller wants paid before it serves this
// one: without this call's key, headers and offer.
func (c Charge) ForEarlier(method, url string) Charge {
	q := Request{Request: seller.Request{Method: method, URL: url, Body: []byte("{}")}}
	c.in, _ = q.parse(c.in.agent) // nothing of it can be wrong
	c.UpTo = nil
	return c.At(c.Network, c.PayTo)
}

// WithoutKey is the charge as that of a call nobody will make again.
func (c Charge) WithoutKey() Charge {
	c.in.IdempotencyKey, c.UpTo = "", nil
	return c
}

// option is the charge in the engine's words, at an amount.
func (c Charge) option(amount money.Amount) option {
	return option{asset: c.Asset, price: c.Asset.Dollars(amount), Requirement: x402.Requirement{
		Dialect: dialectChannel, Scheme: c.Scheme, Network: c.Network, Amount: amount,
		Asset: c.Asset.Address, PayTo: c.PayTo, Raw: c.Requirement,
	}}
}

// Earlier gives the answer of a purchase that was made before: under the same idempotency key, or
// the same request whose answer nobody got. done is false where there is none. Only c's request,
// network and payee are looked at.
func (e *Engine) Earlier(ctx context.Context, c Charge) (r Result, done bool, err error) {
	q := c.in
	list, err := e.Store.ByRequest(ctx, q.fingerprint)
	if err != nil {
		return r, false, err
	}
	if q.IdempotencyKey != "" {
		p, err := e.Store.ByKey(ctx, q.agent, q.IdempotencyKey)
		switch {
		case errors.Is(err, history.ErrNotFound):
		case err != nil:
			return r, false, err
		case p.Fingerprint != q.fingerprint:
			return r, false, otherRequest(p)
		default:
			return e.replay(ctx, p)
		}
	}
	for _, p := range list {
		if p.State != history.Settled || e.awaited(p, CallFrom(ctx)) || p.IdempotencyKey != q.IdempotencyKey {
			continue
		}
		if r, done, err := e.replay(ctx, p); done || err != nil {
			return r, done, err
		}
	}
	return r, false, nil
}

// Ceiling is the most that a call may turn out to cost, in atomic units, and what to say of one that costs
// more: what stands in its way.
type Ceiling struct {
	Most money.Amount
	over func(ctx context.Context) error
}

// Over is the refusal of a call that costs more. Where a person's approval is all that it lacks, they are
// asked.
func (l Ceiling) Over(ctx context.Context) error { return l.over(ctx) }

// Ceiling is what a call may cost: what the caller offers, the owner's rules let pass and the funds cover.
// It is above 0, or an error says what stands in the way. The seller is sent it as the call's maxAmount, so
// that it proposes nothing that a person would have to be asked about after it served. The charge comes back
// with the most that a person may approve: an offer beyond the owner's limits is cut to them.
func (e *Engine) Ceiling(ctx context.Context, c Charge) (_ Charge, l Ceiling, err error) {
	offered := c.Offered()
	limit, beyond, err := e.limit(ctx, c)
	if err != nil {
		return c, l, err
	}
	if offered != nil {
		c.UpTo = &limit
		if offered.Cmp(limit) < 0 {
			c.UpTo = offered
		}
	}
	unasked, err := e.unasked(ctx, c)
	if x402.HasCode(err, x402.ApprovalRequired) && c.UpTo != nil && !c.UpTo.IsZero() {
		if asked := e.AskAbout(ctx, c); asked != nil {
			err = asked
		}
	}
	if err != nil {
		return c, l, err
	}
	l.Most = limit
	for _, most := range []*money.Amount{c.UpTo, &unasked, &c.Funds.Free} {
		if most != nil && most.Cmp(l.Most) < 0 {
			l.Most = *most
		}
	}
	l.over = func(ctx context.Context) error {
		switch most := l.Most; {
		case c.Funds.Free.Cmp(most) == 0:
			return e.chargeLacks(ctx, c, &history.ShortOfFunds{Free: most})
		case limit.Cmp(most) == 0:
			return beyond
		case c.UpTo != nil && c.UpTo.Cmp(most) > 0:
			return e.AskAbout(ctx, c)
		}
		return c.tooLittle(limit, l.Most)
	}
	if l.Most.IsZero() {
		return c, l, l.over(ctx)
	}
	return c, l, nil
}

// limit is what the owner's limits leave for a charge, whoever approves it, and the refusal of more.
func (e *Engine) limit(ctx context.Context, c Charge) (most money.Amount, beyond, err error) {
	var offer money.Amount
	if offered := c.Offered(); offered != nil {
		offer = *offered
	}
	facts, w, err := e.factsOf(ctx, c, offer)
	if err != nil {
		return most, nil, err
	}
	price, over := e.Rules.Limit(w.ask, facts.Facts)
	return c.Asset.Units(price), over, nil
}

// unasked is what the owner's rules let a call cost without a person, or with their approval of up to c.UpTo.
func (e *Engine) unasked(ctx context.Context, c Charge) (most money.Amount, err error) {
	facts, w, err := e.factsOf(ctx, c, c.upTo())
	if err != nil {
		return most, err
	}
	var approved money.Dollars
	if c.UpTo != nil && slices.ContainsFunc(facts.Approvals, e.mayUse) {
		approved, w.ask.Approved = w.ask.Price, true
	}
	price, err := e.Rules.MaxPrice(w.ask, approved, facts.Facts)
	return c.Asset.Units(price), err
}

// factsOf is what a decision about a charge at an amount rests on.
func (e *Engine) factsOf(ctx context.Context, c Charge, amount money.Amount) (history.Facts, *proposal,
	error) {
	o := c.option(amount)
	w := e.propose(payment(c.in, o, c.Funds), o, c.Funds)
	facts, err := e.Store.Facts(ctx, history.Question{
		Rules: e.Rules.Query(w.ask), Payment: history.Payment{Network: c.Network, Source: c.Funds.Source},
		Quotes: w.quotes,
	})
	if err == nil {
		err = facts.Refusal()
	}
	return facts, w, err
}

// tooLittle is the refusal of a call that costs more than its caller offered, or than is paid without a
// person where the caller offered nothing.
func (c Charge) tooLittle(limit, most money.Amount) error {
	allowed, highest := c.Asset.Dollars(most).Price(), c.Asset.Dollars(limit).Price()
	e := x402.Errorf(x402.AmountExceedsMax, "the call costs more than the %s that it was allowed to",
		allowed).WithDetail("maxAmount", allowed).WithDetail("limit", highest)
	if c.UpTo == nil {
		return e.WithHint("a call that may cost more needs a person's approval: give maxAmount, the most "+
			"that it may cost, up to %s, and they are asked", highest)
	}
	return e.WithHint("this seller names its price with the answer: maxAmount is the most that the call "+
		"may cost, and the owner's limits leave %s", highest).
		WithNext(x402.Next{Do: x402.Change, Why: "the very same call is refused again; if the limit is " +
			"the person's, ask them before you offer more",
			Say: "It costs more than the limit of " + allowed + " that was set for it: may I pay more, at " +
				"most " + highest + "?"})
}

// chargeLacks is the third layer's no for a charge. How its funds are added to its protocol knows.
func (e *Engine) chargeLacks(ctx context.Context, c Charge, lack *history.ShortOfFunds) error {
	amount := c.Amount
	if amount.IsZero() {
		amount = money.NewAmount(1)
	}
	no := x402.AsError(e.insufficient(ctx, c.option(amount), c.Funds, lack))
	if c.Amount.IsZero() { // nobody knows the price
		no.Message = "the call costs more than the " + c.Asset.Dollars(lack.Free).Price() +
			" that is there for it on " + x402.Title(c.Network)
		delete(no.Details, "requested")
		delete(no.Details, "short")
	}
	if c.Refill != "" {
		no.WithHint("the owner has to put more into the payment channel's hub").
			WithCommand(c.Refill, "The payment channel has "+c.Asset.Dollars(lack.Free).Price()+" left on "+
				x402.Title(c.Network)+", too little for the call: please put more into it.")
	}
	return no
}

func (c Charge) upTo() money.Amount {
	if c.UpTo != nil {
		return *c.UpTo
	}
	return c.Amount
}

// Offered is what the caller offers at most, in atomic units; nil: it did not say.
func (c Charge) Offered() *money.Amount {
	l := c.in.limit
	switch {
	case l.atomic != nil:
		return l.atomic
	case l.dollars != nil:
		a := c.Asset.Units(*l.dollars)
		return &a
	}
	return nil
}

// AskAbout asks a person whether a call may cost up to c.UpTo, or c.Amount: the error is
// APPROVAL_REQUIRED with the question's id, or why asking is of no use.
func (e *Engine) AskAbout(ctx context.Context, c Charge) error {
	o := c.option(c.upTo())
	w := e.propose(payment(c.in, o, c.Funds), o, c.Funds)
	w.ask.Always, w.quotes, w.hold.Payment.IdempotencyKey = c.Always, nil, ""
	err := e.decide(ctx, w)
	if !x402.HasCode(err, x402.ApprovalRequired) {
		return err
	}
	o.why = x402.AsError(err)
	return e.askPerson(ctx, c.in, o)
}

// Reserve holds a charge in the owner's budgets. Where a person has to approve it, the error is
// APPROVAL_REQUIRED with the question's id.
func (e *Engine) Reserve(ctx context.Context, c Charge) (*Purchase, error) {
	o := c.option(c.Amount)
	w := e.propose(payment(c.in, o, c.Funds), o, c.Funds)
	w.ask.Always, w.sessionCap = c.Always, e.sessionCapOnce(ctx)
	if c.UpTo != nil && c.Amount.Cmp(*c.UpTo) <= 0 {
		offer := c.option(*c.UpTo)
		w.quotes = [][sha256.Size]byte{terms(priced(w.hold.Payment, offer), offer), w.quotes[0]}
	}
	p, err := e.holdFor(ctx, ctx, w)
	var lack *history.ShortOfFunds
	var taken *history.AlreadyPaying
	switch {
	case errors.As(err, &lack):
		return nil, e.chargeLacks(ctx, c, lack)
	case errors.As(err, &taken):
		return nil, x402.Errorf(x402.InvalidArgument,
			"this idempotencyKey was used for another call meanwhile").
			WithDetail("paymentId", taken.Payment.ID)
	case x402.HasCode(err, x402.ApprovalRequired):
		o.why = x402.AsError(err)
		return nil, e.askPerson(ctx, c.in, o)
	case err != nil:
		return nil, err
	}
	if err := p.askHook(ctx); err != nil {
		err = p.NotSent(ctx, err)
		p.End(false)
		return nil, err
	}
	return p, nil
}

// Abandon says that nobody waits for what was bought: the same call gets it.
func (p *Purchase) Abandon(ctx context.Context) { p.engine.giveUp(ctx, p.Payment.ID) }

// Result is the answer to a call whose purchase is on record.
func (p *Purchase) Result(ctx context.Context, a *seller.Answer) Result {
	return p.engine.paid(ctx, p.Payment, verdict{served: true}, a)
}

// Free is the answer to a call that cost nothing.
func (e *Engine) Free(_ context.Context, a *seller.Answer) Result { return e.free(a) }
