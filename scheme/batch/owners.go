package batch

import (
	"context"
	"errors"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// Paying through channels that an owner funds: the payer is their account, and the agent, who has no key of
// theirs, signs vouchers alone. The chain caps what it can promise to this seller at what lies there, and
// what is not claimed goes back to the owner.
//
// A host with which an owner funds a channel is paid through it alone: neither by a deposit of the agent's
// nor in another way, or what caps the agent would cap nothing. When nothing is left there, or the seller
// asks for other terms, the call is refused until the owner has decided. That ends when the owner has had
// back all that was left.
//
// Nothing was counted when the owner deposited, so a voucher counts in the windows, as any payment
// (history/batch.go says at what). Its owner may take the money back at any time without this wallet's
// knowing, so each call reads the channel from the chain.

func (b *Channels) KeptTo(ctx context.Context, host string) (scheme.Kept, error) {
	if b.Ledger == nil {
		return nil, nil
	}
	rows, err := b.Ledger.BatchChannelsWith(ctx, host)
	if err != nil {
		return nil, err
	}
	var list []channel
	for _, row := range rows {
		c, err := read(row)
		if err != nil {
			return nil, err
		}
		if c.signed.IsOwners() && !c.book.Over {
			list = append(list, c)
		}
	}
	if list == nil {
		return nil, nil
	}
	return func(o scheme.Option) (channel string, why *x402.Error, err error) {
		what := "it asks to be paid in another way"
		if o.Way() == b.Name() {
			channel, what, err = b.ownersFor(o, list)
		}
		if channel != "" || err != nil {
			return channel, nil, err
		}
		return "", x402.Errorf(x402.PolicyDenied, "an owner funds a channel with %s, which is paid through "+
			"that alone, and %s", x402.Brief(host), what).
			WithHint("the owner funds a channel on these terms (x402-wallet channel deposit), or takes "+
				"back what is left in the other one (%s)", x402.Command("channel", "withdraw", host)), nil
	}, nil
}

// ownersFor is the channel of a list that an option is paid through: one with room for its price, if there
// is one; "": none, and what is different about it.
func (b *Channels) ownersFor(o scheme.Option, list []channel) (id, what string, err error) {
	for _, c := range list {
		config, wanted, err := b.Chain.Config(o.Requirement, o.Token, c.signed.Config.Payer, "")
		if err != nil {
			return "", "", err
		}
		switch {
		case c.Network != o.Network:
			what = "it asks to be paid on " + x402.Title(o.Network)
		case wanted != c.ID:
			what = "it asks for another one: " + differs(c.signed.Config, config)
		default:
			id = c.ID
			if left := c.book.Funds.SubFloor(c.Amount); left.Cmp(o.Amount) >= 0 {
				return id, "", nil
			}
		}
	}
	return id, what, nil
}

// readOwners reads a channel that an owner funds from the chain into its book, which goes on as it is where
// the node is behind it. A deposit of theirs that was made, taken back, or is too old is forgotten.
func (b *Channels) readOwners(ctx context.Context, c channel) (channel, error) {
	if d := c.book.Owners; d != nil {
		used, err := b.Chain.OwnersUsed(ctx, c.Network, c.signed.Config, *d)
		if err != nil {
			return c, err
		}
		if used || b.Now().Unix() >= d.ValidBefore {
			c.book.Owners = nil
		}
	}
	chain, err := b.Chain.ReadChannel(ctx, c.Network, c.ID)
	if err != nil {
		return c, err
	}
	charged := c.Claimed
	c, isNewer := c.seen(chain)
	if isNewer && !chain.WithdrawBegan.IsZero() {
		c.book.Stopped = withdrawn
	}
	if c.isContradicted(charged) {
		c.book.Stopped = "the seller claimed more than it says it charged"
	}
	return c, nil
}

// isContradicted reports whether more was claimed than a seller says it charged: by vouchers of this ledger,
// of which none is open. It refused one, then, and has it all the same: another one for the same call would
// be one too many.
func (c channel) isContradicted(charged money.Amount) bool {
	return c.Claimed.Cmp(charged) > 0 && c.Claimed.Cmp(c.Amount) <= 0 && len(c.book.Vouchers) == 0
}

// proposeOwners decides what a call takes of a channel that an owner funds: a voucher, and the owner's
// deposit with it where one waits to be brought.
func (b *Channels) proposeOwners(call scheme.ChannelCall, c channel, state channelState) (
	*scheme.ChannelUse, error) {
	var order onchain.ChannelOrder
	if d := c.book.Owners; d != nil && d.Signature != "" {
		order.Owners = d
		state.book.Funds, _ = state.book.Funds.Add(d.Value)
	}
	var err error
	order.Ceiling, _, err = state.plan() // with nothing that may be deposited
	left := state.book.Funds.SubFloor(state.base())
	switch {
	case errors.Is(err, errTooLittle):
		return nil, c.exhausted(call, left)
	case err != nil:
		return nil, err
	}
	use := c.use(call, order)
	use.Funds = b.fundsIn(c, left)
	use.Prepaid = order.Ceiling.Cmp(c.Amount) <= 0 // by a voucher that was refused, and counts
	return use, nil
}

// exhausted refuses a call that the money in a channel of an owner's does not cover.
func (c channel) exhausted(call scheme.ChannelCall, left money.Amount) error {
	owner, wanted := c.signed.Config.Payer, call.Amount.Times(fewCalls)
	command := x402.Command("channel", "deposit", call.URL, "--owner", owner, "--network", call.Network,
		"--amount", wanted.Units(call.Token.Decimals))
	price, there := call.Price.Price(), call.Token.Dollars(left).Price()
	return x402.Errorf(x402.InsufficientFunds, "the channel that its owner funds with %s does not cover the "+
		"price %s: %s is left in it", x402.Brief(call.Host), price, there).
		WithHint("the owner funds it by: %s", command).
		WithDetail("layer", "chain").WithDetail("network", call.Network).
		WithDetail("asset", call.Token.Address).WithDetail("symbol", call.Token.Symbol).
		WithDetail("source", c.Source).WithDetail("owner", owner).
		WithDetail("available", left).WithDetail("requested", call.Amount).
		WithDetail("short", call.Amount.SubFloor(left)).
		WithCommand(command, "Please put more into your channel with "+x402.Brief(call.Host)+" ("+owner+
			" on "+x402.Title(call.Network)+"): the price is "+price+", and "+there+" is left in it.")
}

// refusedNote is what a payment says whose voucher was refused and can be claimed all the same.
const refusedNote = "the seller's books show that this voucher was not charged; it can be claimed, so it " +
	"counts, and the next one that promises no more counts nothing"

// endRefused ends a payment by a voucher in a channel of an owner's that its seller did not charge: what it
// promised counts for good, and the purchase may begin anew. Of a payment with an idempotency key there is
// one alone, so it stays as it is.
func (b *Channels) endRefused(ctx context.Context, p history.Payment) bool {
	if p.IdempotencyKey != "" {
		return false
	}
	_, err := b.Ledger.Finish(ctx, p.ID, history.Outcome{State: history.Settled, Proof: history.Claimed,
		Note: refusedNote, ReleaseLease: true, ClearWaiter: true})
	if err == nil {
		err = b.Ledger.Deliver(ctx, p.ID) // no later call gets anything for it
	}
	if err != nil && !errors.Is(err, history.ErrTransition) {
		b.Log.Error("end a voucher that was refused", "payment", p.ID, "err", err)
	}
	return err == nil
}
