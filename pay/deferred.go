package pay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Sellers that serve first and are paid by a promise with a later request: payment channels.
// Package channel speaks with them; here is the money, which is held, asked about and recorded as
// that of every other payment. The order of the steps is the same too: what a call may cost is
// known before it is made, its cost is held before it is signed for, and what was signed is on disk
// before it leaves.

// DialectChannel is in the ledger for what was bought through a payment channel.
const DialectChannel x402.Dialect = "channel"

// Charge is what a seller charges for something it served, or will have served: Amount is 0 as long
// as nobody knows.
type Charge struct {
	Request
	Network, Scheme string
	Asset           x402.AssetInfo
	PayTo           string // for the ledger and the owner's rules
	Funds           x402.Funds
	Amount          money.Amount
	UpTo            *money.Amount // a person may have said yes to so much, before the price was known
	Always          string        // why a person is asked whatever it costs; "": they are not
	Requirement     json.RawMessage
}

// channelHeader keeps a channel's purchase apart from one of the same request by another way of
// paying.
const channelHeader = "Payment-Channel"

// marked is a request as the ledger knows it.
func (c Charge) marked() intent {
	q := c.Request
	q.Header = http.Header{channelHeader: {c.Network + " " + c.PayTo}}
	in, _ := q.parse() // CheckCharge has
	return in
}

// chargeAt is the charge in the engine's own words, at an amount.
func (e *Engine) chargeAt(c Charge, amount money.Amount) (found *quote, o option) {
	found = &quote{answer: &seller.Answer{FinalURL: c.URL},
		challenge: &x402.Challenge{Dialect: DialectChannel}}
	o = option{asset: c.Asset, price: c.Asset.Dollars(amount), Requirement: x402.Requirement{
		Dialect: DialectChannel, Scheme: c.Scheme, Network: c.Network, Amount: amount, Asset: c.Asset.Address,
		PayTo: c.PayTo, Raw: c.Requirement}}
	return found, o
}

// Earlier gives the answer of a purchase that was made before: under the same idempotency key, or
// the same request whose answer nobody got. done is false where there is none. Only c's request,
// network and payee are looked at.
func (e *Engine) Earlier(ctx context.Context, c Charge) (r Result, done bool, err error) {
	q := c.marked()
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
		if p.State != history.Settled || e.awaited(p) || p.IdempotencyKey != q.IdempotencyKey {
			continue
		}
		if r, done, err := e.replay(ctx, p); done || err != nil {
			return r, done, err
		}
	}
	return r, false, nil
}

// CheckCharge reads and refuses a call's arguments, and hosts that the owner does not allow.
func (e *Engine) CheckCharge(c *Charge) error {
	in, err := c.parse()
	if err != nil {
		return err
	}
	c.Request = in.Request
	return e.Rules.CheckHost(in.host)
}

// MaxPrice is the most that a call may turn out to cost, in atomic units: what the caller offers,
// the owner's rules let pass and the funds cover. It is above 0, or an error says what stands in
// the way.
func (e *Engine) MaxPrice(ctx context.Context, c Charge) (room money.Amount, err error) {
	l, err := parseLimit(c.MaxAmount)
	if err != nil {
		return room, err
	}
	found, o := e.chargeAt(c, c.upTo())
	p := e.payment(c.marked(), found, o, c.Funds)
	if room, err = e.maxPrice(ctx, c, e.propose(p, o, c.Funds)); err != nil {
		return room, err
	}
	if c.Funds.Free.IsZero() {
		_, one := e.chargeAt(c, money.NewAmount(1))
		return room, short(one, c.Funds, &history.ShortOfFunds{Wanted: money.NewAmount(1)})
	}
	for _, most := range []*money.Amount{l.atomic, units(c.Asset, l.dollars), &c.Funds.Free} {
		if most != nil && most.Cmp(room) < 0 {
			room = *most
		}
	}
	if room.IsZero() {
		return room, x402.Errorf(x402.AmountExceedsMax, "maxAmount %q leaves nothing to pay with",
			x402.Brief(c.MaxAmount)).
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
	if most = c.Asset.Units(price); most.IsZero() { // the rule that leaves none says so itself
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

func units(asset x402.AssetInfo, price *money.Dollars) *money.Amount {
	if price == nil {
		return nil
	}
	a := asset.Units(*price)
	return &a
}

// Offered is what the caller offers at most, in atomic units; nil: it did not say.
func (c Charge) Offered() *money.Amount {
	l, err := parseLimit(c.MaxAmount)
	if err != nil {
		return nil
	}
	if l.atomic != nil {
		return l.atomic
	}
	return units(c.Asset, l.dollars)
}

// AskAbout asks a person whether a call may cost up to c.UpTo, or c.Amount: the error is
// APPROVAL_REQUIRED with the question's id, or why asking is of no use.
func (e *Engine) AskAbout(ctx context.Context, c Charge) error {
	found, o := e.chargeAt(c, c.upTo())
	p := e.payment(c.marked(), found, o, c.Funds)
	w := e.propose(p, o, c.Funds)
	w.ask.Always, w.quotes, w.hold.Payment.IdempotencyKey = c.Always, nil, ""
	err := e.decide(ctx, w)
	if !x402.HasCode(err, x402.ApprovalRequired) {
		return err
	}
	o.why = x402.AsError(err)
	return e.askPerson(ctx, c.marked(), found, o)
}

// Held is a charge whose money is held.
type Held struct {
	Payment history.Payment

	engine   *Engine
	approval *history.Approval // a person's, that it used up; nil: none was needed
	shown    history.Payment   // what that person was shown
}

// HoldCharge holds a charge in the owner's budgets. End has to be called when the call ends. Where
// a person has to say yes, the error is APPROVAL_REQUIRED with the question's id.
func (e *Engine) HoldCharge(ctx context.Context, c Charge) (*Held, error) {
	found, o := e.chargeAt(c, c.Amount)
	p := e.payment(c.marked(), found, o, c.Funds)
	w := e.propose(p, o, c.Funds)
	w.ask.Always, w.sessionCap = c.Always, e.sessionCapOnce(ctx)
	shown := p
	if c.UpTo != nil && c.Amount.Cmp(*c.UpTo) <= 0 {
		_, offered := e.chargeAt(c, c.upTo())
		shown = at(p, offered)
		w.quotes = [][sha256.Size]byte{terms(shown, offered), w.quotes[0]}
	}
	payment, err := e.holdFor(ctx, ctx, w)
	var lack *history.ShortOfFunds
	var taken *history.AlreadyPaying
	switch {
	case errors.As(err, &lack):
		err = short(o, c.Funds, lack)
	case errors.As(err, &taken):
		err = x402.Errorf(x402.InvalidArgument,
			"this idempotencyKey was used for another call meanwhile").WithDetail("paymentId",
			taken.Payment.ID)
	case x402.HasCode(err, x402.ApprovalRequired):
		o.why = x402.AsError(err)
		err = e.askPerson(ctx, c.marked(), found, o)
	}
	if err != nil {
		return nil, err
	}
	held := &Held{Payment: payment, engine: e, approval: w.hold.Approval, shown: payment}
	if held.approval != nil && held.approval.Quote == w.quotes[0] {
		held.shown.Amount, held.shown.Price = shown.Amount, shown.Price
	}
	return held, nil
}

// MaySign is asked before a held charge is signed for: the owner's rules are sealed, and so is a
// person's yes.
func (h *Held) MaySign(ctx context.Context) error {
	if err := h.engine.Guard.VerifySeals(ctx); err != nil || h.approval == nil {
		return err
	}
	return h.engine.Guard.Approved(ctx, h.shown, *h.approval, h.engine.wasHeard(*h.approval))
}

// Release ends the hold of a charge of which nothing was signed; the error is cause, with a code.
func (h *Held) Release(ctx context.Context, cause error) error {
	return h.engine.release(ctx, h.Payment, cause)
}

// End says that the call is done; answered, that its caller is being told.
func (h *Held) End(answered bool) { h.engine.inflight.end(h.Payment.ID, answered) }

// at is the payment at another amount.
func at(p history.Payment, o option) history.Payment {
	p.Amount, p.Price = o.Amount, o.price
	return p
}

// Abandoned says that nobody waits for what was bought: the same call gets it.
func (e *Engine) Abandoned(ctx context.Context, p history.Payment) { e.giveUp(ctx, p.ID) }

// Bought is the answer to a call whose charge is on record.
func (e *Engine) Bought(ctx context.Context, p history.Payment, a *seller.Answer) Result {
	return e.paid(ctx, p, verdict{served: true}, a)
}

// Free is the answer to a call that cost nothing.
func (e *Engine) Free(ctx context.Context, a *seller.Answer) Result { return e.free(ctx, a) }
