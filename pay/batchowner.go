package pay

import (
	"context"
	"errors"

	"x402-wallet/history"
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

// ownersChannels are those with a host that an owner funds.
func (e *Engine) ownersChannels(ctx context.Context, host string) (list []history.Channel, err error) {
	if e.ChannelBook == nil {
		return nil, nil
	}
	rows, err := e.ChannelBook.BatchChannelsWith(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		signed, book, err := row.Batch()
		if err != nil {
			return nil, err
		}
		if signed.IsOwners() && !book.Over {
			list = append(list, row)
		}
	}
	return list, nil
}

// keepToOwners refuses the options that are not paid through the channel that an owner funds with the host,
// where there is one.
func (e *Engine) keepToOwners(ctx context.Context, host string, options []option) error {
	rows, err := e.ownersChannels(ctx, host)
	if err != nil || len(rows) == 0 {
		return err
	}
	for i := range options {
		o := &options[i]
		if o.why != nil {
			continue
		}
		what := "it asks to be paid in another way"
		if o.isBatch() {
			o.owners, what, err = e.ownersFor(*o, rows)
			if err != nil {
				return err
			}
		}
		if o.owners == "" {
			o.stage = stageRules
			o.why = x402.Errorf(x402.PolicyDenied, "an owner funds a channel with %s, which is paid through "+
				"that alone, and %s", x402.Brief(host), what).
				WithHint("the owner funds a channel on these terms (x402-wallet channel deposit), or takes "+
					"back what is left in the other one (%s)", x402.Command("channel", "withdraw", host))
		}
	}
	return nil
}

// ownersFor is the channel among rows that an option is paid through: one with room for its price, if there
// is one; "": none, and what is different about it.
func (e *Engine) ownersFor(o option, rows []history.Channel) (id, what string, err error) {
	for _, row := range rows {
		signed, book, err := row.Batch()
		if err != nil {
			return "", "", err
		}
		config, wanted, err := e.Channels.Config(o.Requirement, o.asset, signed.Config.Payer, "")
		if err != nil {
			return "", "", err
		}
		switch {
		case row.Network != o.Network:
			what = "it asks to be paid on " + x402.Title(o.Network)
		case wanted != row.ID:
			what = "it asks for another one: " + differs(signed.Config, config)
		default:
			id = row.ID
			if left := book.Funds.SubFloor(row.Amount); left.Cmp(o.Amount) >= 0 {
				return id, "", nil
			}
		}
	}
	return id, what, nil
}

// openOwners is a channel that an owner funds, with its book brought up to date from the chain.
func (e *Engine) openOwners(ctx context.Context, id string, save bool) (row history.Channel,
	book history.BatchBook, err error) {
	row, err = e.ChannelBook.Channel(ctx, id, e.Channels.Address())
	if err != nil {
		return row, book, err
	}
	if _, book, err = row.Batch(); err != nil {
		return row, book, err
	}
	if row, book, err = e.readOwners(ctx, row, book); err != nil {
		return row, book, err
	}
	if save {
		if row, book, err = e.updateBook(ctx, row, book); err != nil {
			return row, book, err
		}
		if err = e.ChannelBook.SaveChannel(ctx, row.WithBook(book)); err != nil {
			return row, book, err
		}
	}
	if book.Stopped != "" {
		return row, book, e.stopped(row, book)
	}
	return row.WithBook(book), book, nil
}

// readOwners reads a channel that an owner funds from the chain into its book, which goes on as it is where
// the node is behind it. A deposit of theirs that was made, taken back, or is too old is forgotten.
func (e *Engine) readOwners(ctx context.Context, row history.Channel, book history.BatchBook) (
	history.Channel, history.BatchBook, error) {
	signed, _, err := row.Batch()
	if err != nil {
		return row, book, err
	}
	if d := book.Owners; d != nil {
		used, err := e.Channels.OwnersUsed(ctx, row.Network, signed.Config, *d)
		if err != nil {
			return row, book, err
		}
		if used || e.Now().Unix() >= d.ValidBefore {
			book.Owners = nil
		}
	}
	chain, err := e.Channels.ReadChannel(ctx, row.Network, row.ID)
	if err != nil {
		return row, book, err
	}
	charged := row.Claimed
	row, book, isNewer := seen(row, book, chain)
	if isNewer && !chain.WithdrawBegan.IsZero() {
		book.Stopped = withdrawn
	}
	if isContradicted(row, book, charged) {
		book.Stopped = "the seller claimed more than it says it charged"
	}
	return row, book, nil
}

// isContradicted reports whether more was claimed than a seller says it charged: by vouchers of this ledger,
// of which none is open. It refused one, then, and has it all the same: another one for the same call would
// be one too many.
func isContradicted(row history.Channel, book history.BatchBook, charged money.Amount) bool {
	return row.Claimed.Cmp(charged) > 0 && row.Claimed.Cmp(row.Amount) <= 0 && len(book.Vouchers) == 0
}

// proposeOwners decides what a call takes of a channel that an owner funds: a voucher, and the owner's
// deposit with it where one waits to be brought.
func (e *Engine) proposeOwners(q intent, o *option, row history.Channel, state batchState) (*proposal,
	error) {
	signed, book, err := row.Batch()
	if err != nil {
		return nil, err
	}
	order := onchain.ChannelOrder{Config: signed.Config, Number: row.Nonce + 1, Shown: book.Shown}
	if d := book.Owners; d != nil && d.Signature != "" {
		order.Owners = d
		state.book.Funds, _ = state.book.Funds.Add(d.Value)
	}
	ceiling, _, err := state.plan() // with nothing that may be deposited
	left := state.book.Funds.SubFloor(state.base())
	switch {
	case errors.Is(err, errTooLittle):
		return nil, e.exhausted(q, *o, signed.Config.Payer, row, left)
	case err != nil:
		return nil, err
	}
	order.Ceiling = ceiling
	o.batch = &batchPlan{price: o.Amount, row: row, order: order}
	funds := x402.Funds{Source: row.Source, Balance: left, Free: left, ReadAt: e.Now()}
	p := payment(q, *o, funds)
	isPromised := ceiling.Cmp(row.Amount) <= 0 // by a voucher that was refused, and counts
	if isPromised {
		p.Price = 0
	}
	w := e.propose(p, *o, funds)
	w.ask.Price, w.ask.Prepaid = o.price, isPromised
	w.quotes = [][32]byte{terms(priced(p, *o), *o)}
	return w, nil
}

// exhausted refuses a call that the money in a channel of an owner's does not cover.
func (e *Engine) exhausted(q intent, o option, owner string, row history.Channel, left money.Amount) error {
	wanted := o.Amount
	for range fewCalls - 1 {
		wanted, _ = wanted.Add(o.Amount)
	}
	command := x402.Command("channel", "deposit", q.shownURL, "--owner", owner, "--network", o.Network,
		"--amount", wanted.Units(o.asset.Decimals))
	return x402.Errorf(x402.InsufficientFunds, "the channel that its owner funds with %s does not cover the "+
		"price %s: %s is left in it", x402.Brief(q.host), o.price.Price(), o.asset.Dollars(left).Price()).
		WithHint("the owner funds it by: %s", command).
		WithDetail("layer", "chain").WithDetail("network", o.Network).WithDetail("asset", o.asset.Address).
		WithDetail("symbol", o.asset.Symbol).WithDetail("source", row.Source).WithDetail("owner", owner).
		WithDetail("available", left).WithDetail("requested", o.Amount).
		WithDetail("short", o.Amount.SubFloor(left)).
		WithCommand(command, "Please put more into your channel with "+x402.Brief(q.host)+" ("+owner+" on "+
			x402.Title(o.Network)+"): the price is "+o.price.Price()+", and "+o.asset.Dollars(left).Price()+
			" is left in it.")
}

// refusedNote is what a payment says whose voucher was refused and can be claimed all the same.
const refusedNote = "the seller's books show that this voucher was not charged; it can be claimed, so it " +
	"counts, and the next one that promises no more counts nothing"

// endRefused ends a payment by a voucher in a channel of an owner's that its seller did not charge: what it
// promised counts for good, and the purchase may begin anew. Of a payment with an idempotency key there is
// one alone, so it stays as it is.
func (e *Engine) endRefused(ctx context.Context, p history.Payment) bool {
	if p.IdempotencyKey != "" {
		return false
	}
	_, err := e.Store.Finish(ctx, p.ID, history.Outcome{State: history.Settled, Proof: history.Claimed,
		Note: refusedNote, ReleaseLease: true, ClearWaiter: true})
	if err == nil {
		err = e.Store.Deliver(ctx, p.ID) // no later call gets anything for it
	}
	if err != nil && !errors.Is(err, history.ErrTransition) {
		e.Log.Error("end a voucher that was refused", "payment", p.ID, "err", err)
	}
	return err == nil
}
