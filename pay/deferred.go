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
// (payment channels). Package channel speaks their protocol; this file holds, approves and records
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

	in intent
}

// NewCharge reads a call's arguments, and refuses hosts that the owner does not allow.
func (e *Engine) NewCharge(q Request) (Charge, error) {
	in, err := q.parse()
	if err != nil {
		return Charge{}, err
	}
	return Charge{in: in}, e.Rules.CheckHost(in.host)
}

// Request is what is sent to the seller, without payment.
func (c Charge) Request() seller.Request { return c.in.Request.Request }

// At is the charge at an account with its seller. The same request paid in another way, or through
// another account, is another purchase.
func (c Charge) At(network, payTo string) Charge {
	c.Network, c.PayTo = network, payTo
	c.in.fingerprint = c.in.Request.fingerprint(network + " " + payTo)
	return c
}

// ForEarlier is the charge of an earlier call, which the seller wants paid before it serves this
// one: without this call's key, headers and offer.
func (c Charge) ForEarlier(method, url string) Charge {
	q := Request{Request: seller.Request{Method: method, URL: url, Body: []byte("{}")}}
	c.in, _ = q.parse() // nothing of it can be wrong
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
		p, err := e.Store.ByKey(ctx, q.IdempotencyKey)
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

// MaxPrice is the most that a call may turn out to cost, in atomic units: what the caller offers,
// the owner's rules let pass and the funds cover. It is above 0, or an error says what stands in
// the way. The seller is sent it as the call's maxAmount, so that it proposes nothing that a person
// would have to be asked about after it served.
func (e *Engine) MaxPrice(ctx context.Context, c Charge) (room money.Amount, err error) {
	o := c.option(c.upTo())
	w := e.propose(payment(c.in, o, c.Funds), o, c.Funds)
	if room, err = e.maxPrice(ctx, c, w); err != nil {
		return room, err
	}
	if c.Funds.Free.IsZero() {
		return room, insufficient(c.option(money.NewAmount(1)), c.Funds,
			&history.ShortOfFunds{Wanted: money.NewAmount(1)})
	}
	for _, most := range []*money.Amount{c.Offered(), &c.Funds.Free} {
		if most != nil && most.Cmp(room) < 0 {
			room = *most
		}
	}
	if room.IsZero() {
		return room, x402.Errorf(x402.AmountExceedsMax, "maxAmount %s leaves nothing to pay with",
			x402.Quote(c.in.MaxAmount)).
			WithHint("this seller names its price with the answer: give the most that the call may cost, " +
				"like \"$0.10\"")
	}
	return room, nil
}

// maxPrice is the most that the owner's rules, and a person's approval of up to so much, let a call
// cost: above 0.
func (e *Engine) maxPrice(ctx context.Context, c Charge, w *proposal) (most money.Amount, err error) {
	facts, err := e.Store.Facts(ctx, history.Question{
		Rules: e.Rules.Query(w.ask), Payment: history.Payment{Network: c.Network, Source: c.Funds.Source},
		Quotes: w.quotes,
	})
	if err != nil {
		return most, err
	}
	if err := facts.Refusal(); err != nil {
		return most, err
	}
	var approved money.Dollars
	if c.UpTo != nil && slices.ContainsFunc(facts.Approvals, e.mayUse) {
		approved = w.ask.Price
	}
	price, err := e.Rules.MaxPrice(w.ask, approved, facts.Facts)
	if err != nil {
		return most, err
	}
	most = c.Asset.Units(price)
	if most.IsZero() { // the rule that leaves none says so itself
		w.ask.Price = 1
		_, err = e.Rules.Decide(w.ask, facts.Facts)
	}
	return most, err
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
		return nil, insufficient(o, c.Funds, lack)
	case errors.As(err, &taken):
		return nil, x402.Errorf(x402.InvalidArgument,
			"this idempotencyKey was used for another call meanwhile").
			WithDetail("paymentId", taken.Payment.ID)
	case x402.HasCode(err, x402.ApprovalRequired):
		o.why = x402.AsError(err)
		return nil, e.askPerson(ctx, c.in, o)
	}
	return p, err
}

// Abandon says that nobody waits for what was bought: the same call gets it.
func (p *Purchase) Abandon(ctx context.Context) { p.engine.giveUp(ctx, p.Payment.ID) }

// Result is the answer to a call whose purchase is on record.
func (p *Purchase) Result(ctx context.Context, a *seller.Answer) Result {
	return p.engine.paid(ctx, p.Payment, verdict{served: true}, a)
}

// Free is the answer to a call that cost nothing.
func (e *Engine) Free(ctx context.Context, a *seller.Answer) Result { return e.free(ctx, a) }
