package pay

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Paying through channels that hold money (scheme.Channelled): its way says what a call takes of its channel,
// and here that is held, and shown to the seller.

// channelled returns the way of a name if its payments go through channels.
func (e *Engine) channelled(name string) (scheme.Channelled, bool) {
	w, _ := e.way(name)
	c, isOne := w.(scheme.Channelled)
	return c, isOne
}

func (o option) isChannelled() bool {
	_, isOne := o.way.(scheme.Channelled)
	return isOne
}

// keepToOwners refuses the options that are not paid through the channel that an owner funds with the host,
// where there is one.
func (e *Engine) keepToOwners(ctx context.Context, host string, options []option) error {
	for _, w := range e.Ways {
		c, isOne := w.(scheme.Channelled)
		if !isOne {
			continue
		}
		kept, err := c.KeptTo(ctx, host)
		if err != nil || kept == nil {
			return err
		}
		for i := range options {
			o := &options[i]
			if o.why != nil {
				continue
			}
			var why *x402.Error
			o.channel, why, err = kept(o.offer())
			if err != nil {
				return err
			}
			if why != nil {
				o.stage, o.why = stageRules, why
			}
		}
	}
	return nil
}

// reserveThrough holds the money of an option that is paid through a channel, which is this call's until the
// purchase ends. o becomes what is held, so that a person who is asked about it is asked about that.
func (e *Engine) reserveThrough(ctx, caller context.Context, c scheme.Channelled, q intent, o *option,
	found *quote) (p *Purchase, err error) {
	id := o.channel
	if id == "" {
		id, err = c.Channel(o.offer(), q.agent)
		if err != nil {
			return nil, err
		}
	}
	unlock := found.takeChannel(id)
	if unlock == nil {
		unlock, err = c.Lock(ctx, o.Network, q.host, id)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	w, err := e.proposeThrough(ctx, c, q, o, true)
	if err != nil {
		return nil, err
	}
	w.sessionCap, w.hold.Resume, w.many = e.sessionCapOnce(ctx), q.IdempotencyKey == "", q.many
	w.unlock = unlock
	p, err = e.holdFor(ctx, caller, w)
	var lack *history.ShortOfFunds
	if errors.As(err, &lack) {
		return nil, e.insufficient(ctx, *o, w.hold.Funds, lack)
	}
	return p, err
}

// proposeThrough asks for what a call takes of its channel. Without save nothing is written, and no payment
// is looked up.
func (e *Engine) proposeThrough(ctx context.Context, c scheme.Channelled, q intent, o *option, save bool) (
	*proposal, error) {
	if o.use != nil { // it was decided on before
		o.Amount, o.price = o.use.Price, o.asset.Dollars(o.use.Price)
	}
	most := o.asset.Units(e.Rules.PerCall)
	if offered := q.limit.units(o.asset); offered != nil && offered.Cmp(most) < 0 {
		most = *offered
	}
	use, err := c.Propose(ctx, scheme.ChannelCall{Option: o.offer(), Agent: q.agent, Host: q.host,
		URL: q.shownURL, Channel: o.channel, Most: most,
		Beyond: func(least money.Amount, room money.Dollars) error {
			return e.depositBeyond(q, *o, least, room)
		}}, save)
	if err != nil {
		return nil, err
	}
	o.use, o.Amount, o.price = use, use.Amount, o.asset.Dollars(use.Amount)
	p := payment(q, *o, use.Funds)
	if use.Prepaid {
		p.Price = 0
	}
	w := e.propose(p, *o, use.Funds)
	w.ask.Price, w.ask.Prepaid, w.ask.Always = o.price, use.Prepaid, use.AlwaysAsk
	w.quotes = [][sha256.Size]byte{terms(priced(p, *o), *o)} // as a person is asked
	return w, nil
}

// depositBeyond refuses a deposit that is above what the owner lets one call be, or what the caller offers.
func (e *Engine) depositBeyond(q intent, o option, least money.Amount, room money.Dollars) error {
	wants := o.asset.Dollars(least)
	if wants > e.Rules.PerCall {
		return e.Rules.CheckCall(q.agent, wants)
	}
	asked, most, ok := q.limit.allows(least, wants)
	if ok || wants > room {
		return nil
	}
	return x402.Errorf(x402.AmountExceedsMax, "the seller is paid from a deposit of %s at least, which is "+
		"above maxAmount %s", wants.Price(), inDollars(o.asset, most)).
		WithHint("with maxAmount %q the first call deposits; what calls do not use can be asked back", asked).
		WithDetail("requested", asked).WithDetail("maxAmount", most).
		WithNext(x402.Next{Do: x402.Change, Why: "the very same call is refused again; if the limit is the " +
			"person's, ask them before you offer more",
			Say: "It wants a deposit of " + wants.Price() + ", above the limit of " +
				inDollars(o.asset, most) + " that was set for it: may I deposit that?"})
}

// wouldPassThrough is wouldPass of an option that is paid through a channel.
func (e *Engine) wouldPassThrough(ctx context.Context, c scheme.Channelled, q intent, o option,
	chain reader) error {
	w, err := e.proposeThrough(ctx, c, q, &o, false)
	if err != nil {
		return err
	}
	if funds := w.hold.Funds; o.Amount.Cmp(funds.Free) > 0 {
		return e.insufficient(ctx, o, funds, &history.ShortOfFunds{Free: funds.Free, Wanted: o.Amount})
	}
	w.hold.Payment.IdempotencyKey = "" // whose it is makes no difference to what it costs
	w.sessionCap = chain.newCap
	return e.decide(ctx, w)
}

// keptChannel is a locked channel whose seller refused a voucher and counts from another sum. The second try
// of the same call goes on with it. Were it unlocked in between, another call could promise less than the
// refused voucher did, and the second try would promise its price on top of both.
type keptChannel struct {
	id     string
	unlock func()
}

// keepChannel keeps the channel of a purchase that ends, for the second try.
func (q *quote) keepChannel(p *Purchase) {
	q.kept = &keptChannel{p.option.use.Channel, p.unlock}
	p.unlock = nil
}

// takeChannel returns the unlock function of the kept channel if it is the one with this id. Another one is
// unlocked, so that no call waits for one channel while it holds another. It returns nil if none is kept.
func (q *quote) takeChannel(id string) (unlock func()) {
	if q.kept != nil && q.kept.id == id {
		unlock, q.kept = q.kept.unlock, nil
	}
	q.releaseChannel()
	return unlock
}

func (q *quote) releaseChannel() {
	if q.kept != nil {
		q.kept.unlock()
		q.kept = nil
	}
}

// errRecounted says that a voucher was not charged, because the seller counts from another sum, which is in
// the book now: the purchase begins anew, with nothing held.
var errRecounted = errors.New("the seller counts from another sum")

// finishCounted records what became of a voucher that was shown to its seller, first in the channel's book.
// The channel is this call's.
func (e *Engine) finishCounted(ctx context.Context, c scheme.Channelled, p history.Payment, f facts) (Result,
	error) {
	v := judge(f)
	answer := scheme.ChannelAnswer{Again: f.again}
	if f.answer != nil {
		answer.Settlement, answer.Challenge = f.answer.Settlement, f.answer.Challenge
	}
	outcome, err := c.Count(ctx, p, answer)
	if err != nil { // the book counts the voucher as charged until it is known
		e.Log.Error("record what a seller charged", "payment", p.ID, "err", err)
	}
	switch {
	case f.settled && outcome == scheme.CountRejected && p.IdempotencyKey == "":
		// The deposit is in the channel, and no call was charged: this one is, from there.
		e.releaseLease(ctx, p.ID)
		if err := e.Store.Deliver(ctx, p.ID); err == nil {
			f.answer.Release()
			return Result{}, errRecounted
		}
	case f.settled:
	case outcome == scheme.CountRejected && p.ByVoucher():
		if c.EndVoucher(ctx, p, false) {
			f.answer.Release()
			return Result{}, errRecounted
		}
	case outcome == scheme.CountBefore && p.ByVoucher():
		v = verdict{state: history.Settled, proof: history.Claimed,
			note: "the seller shows that it charged for it; its answer was lost"}
	}
	return e.finish(ctx, p, v, f.answer)
}

// isEmptied reports whether a state in which nothing is left for a voucher ends it.
func (e *Engine) isEmptied(ctx context.Context, p history.Payment, status x402.Status) bool {
	c, isOne := e.channelled(p.Scheme)
	return isOne && c.IsEmptied(ctx, p, status)
}

// Worth is what a payment is worth: of one by a voucher, which counts nothing by itself, its amount.
func (e *Engine) Worth(p history.Payment) money.Dollars {
	if asset, ok := e.Assets.Asset(p.Network, p.Asset); ok && p.Prepaid() {
		return asset.Dollars(p.Amount)
	}
	return p.Price
}

// Offered is the option of a way that the seller at a URL offers and that could be paid, and its host;
// network "": on any. It is nil where the seller offers none. Nothing is written.
func (e *Engine) Offered(ctx context.Context, way, url, network string) (_ *scheme.Option, host string,
	err error) {
	in, err := Request{Request: seller.Request{Method: http.MethodGet, URL: url}, Network: network}.
		parse(AgentFrom(ctx))
	if err == nil {
		err = e.Guard.CheckConfig(ctx)
	}
	if err == nil {
		err = e.mayAsk(ctx, in.Request.Request, in.host)
	}
	if err != nil {
		return nil, in.host, err
	}
	found, err := e.quote(ctx, in)
	if err != nil {
		return nil, in.host, err
	}
	defer found.answer.Release()
	var options []option
	if found.challenge != nil {
		options = e.judge(found, in)
	}
	for _, o := range options {
		switch {
		case o.Way() != way:
		case o.why == nil:
			offer := o.offer()
			return &offer, in.host, nil
		case err == nil:
			err = o.why
		}
	}
	return nil, in.host, err
}
