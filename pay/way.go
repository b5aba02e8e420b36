package pay

import (
	"context"
	"net/url"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// way returns the way of a name, and how simple it is: the more of a payment is in what is signed, the less
// anybody has to be believed. A name that is not registered is a plain way behind all others.
func (e *Engine) way(name string) (w scheme.Way, rank int) {
	for i, w := range e.Ways {
		if w.Name() == name {
			return w, i
		}
	}
	return unregistered{}, len(e.Ways)
}

// simplest is the name of the simplest way to pay, by which most sellers are paid.
func (e *Engine) simplest() string {
	if len(e.Ways) == 0 {
		return ""
	}
	return e.Ways[0].Name()
}

func (e *Engine) wayOf(p history.Payment) scheme.Way {
	w, _ := e.way(p.Scheme)
	return w
}

// unregistered is a way that nobody registered: rows of the ledger may have one.
type unregistered struct{ scheme.Plain }

func (unregistered) Name() string { return "" }

func plainIfNil(w scheme.Way) scheme.Way {
	if w == nil {
		return unregistered{}
	}
	return w
}

// checkWay refuses a way of paying that this wallet does not know, or that its owner left out of its rules.
func (e *Engine) checkWay(name string) error {
	w, rank := e.way(name)
	switch {
	case w.OwnAccountOnly() && e.Rules.Account != "":
		return x402.Errorf(x402.InvalidRequirement, "%s is paid by the wallet's own account alone, and "+
			"not by the account %q", name, e.Rules.Account).
			WithHint("nothing was signed; take another option or seller")
	case rank == len(e.Ways):
		return x402.Errorf(x402.InvalidRequirement, "the scheme %s is not one this wallet pays by",
			x402.Quote(name))
	case !e.Policy.has(name):
		return x402.Errorf(x402.InvalidRequirement, "the owner's rules do not have anything paid by %s "+
			"(policy.schemes)", name).WithHint("nothing was signed; take another option or seller")
	}
	return nil
}

// offer is an option as its way is asked about it.
func (o option) offer() scheme.Option {
	return scheme.Option{Requirement: o.Requirement, Token: o.asset, Price: o.price, Extensions: o.extensions}
}

// within is what of funds the option can be paid with.
func (o option) within(funds x402.Funds) x402.Funds {
	return plainIfNil(o.way).Spendable(o.offer(), funds)
}

// callOf is a call as ways are asked about it. final is where the challenge came from.
func (e *Engine) callOf(q intent, final string) scheme.Call {
	c := scheme.Call{IsMCP: seller.IsMCP(q.Method), Header: q.Header, Body: q.Body, Now: e.Now()}
	if at, err := url.Parse(final); err == nil {
		c.Host = at.Host
	}
	return c
}

// charged is what a payment came to: by the chain, or by its receipt while that is all there is. It is nil
// while nothing says so.
func (e *Engine) charged(p history.Payment) *money.Amount {
	if p.Charged != nil {
		return p.Charged
	}
	return e.wayOf(p).Charged(p)
}

// NoReceipt says why no receipt is made of a settled payment. It is nil if one is.
func (e *Engine) NoReceipt(p history.Payment) error { return e.wayOf(p).NoReceipt(p) }

// awaitTurns waits until no payment before this one is under way that would be in its way (scheme.Way). It
// lasts until the purchase ends.
func (p *Purchase) awaitTurns(ctx context.Context) error {
	var ends []func()
	p.endTurn = func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	for _, name := range plainIfNil(p.option.way).Turns(p.option.offer(), p.funds) {
		end, err := p.engine.turns.begin(ctx, name)
		if err != nil {
			return err
		}
		ends = append(ends, end)
	}
	return nil
}
