package batch

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// The book of a channel with a deposit: what its seller has charged. A seller's word counts only where it
// costs us nothing, or where it shows a voucher of ours.

// count is what a seller said after a voucher was shown to it.
type count struct {
	*wire.ChannelCount
	own     bool // the voucher in it is signed by this wallet
	success bool // the payment was taken
	again   bool // the voucher may have been shown before
}

// judgeCount is the table of what sellers say. It is pure: ceiling is the voucher's that was shown, price
// what it was for, charged the book's sum. C is what the seller says it has charged in all, S the voucher
// that it shows.
//
//	  the seller                                          outcome    charged from then on
//	1 took it, and says nothing more                      charged    the ceiling
//	2 took it: by ≤ the price, C = before + that          charged    C
//	3 took it, and says anything else                     too much   the ceiling
//	4 did not: C ≤ the book's sum; the voucher was shown  before     C
//	  before, and C is above its ceiling less the price
//	5 did not: C ≤ the book's sum, otherwise              rejected   C
//	6 did not: C ≤ S, S is ours; the voucher was shown    before     C
//	  before, and C is as in 4 or S is that very one
//	7 did not: C ≤ S, S is ours, and not the one that     rejected   C
//	  it does not take
//	8 anything else: another channel, a foreign or no     nothing    as before
//	  voucher, C > S
//
// A seller that does not take a voucher, and shows it as charged (7), would get two for one call. So would an
// honest one whose answer is in the book, and not in the payment's row, because the process ended between
// the two (4).
//
// Where a voucher above all that we know was shown (S), it was signed by this wallet before its ledger was
// lost: the next one may go beyond it by the price, and no further.
func judgeCount(c count, channel string, ceiling, price, charged money.Amount) (scheme.Counted,
	money.Amount) {
	if c.success {
		return judgeTaken(c.ChannelCount, channel, ceiling, price)
	}
	if c.ChannelCount == nil || c.Charged == nil || c.ID != channel {
		return scheme.CountNothing, charged
	}
	isCounted := c.again && wasCharged(ceiling, price, *c.Charged)
	if c.Charged.Cmp(charged) <= 0 {
		if isCounted {
			return scheme.CountBefore, *c.Charged
		}
		return scheme.CountRejected, *c.Charged
	}
	if c.Voucher == nil || !c.own || c.Charged.Cmp(c.Voucher.Ceiling) > 0 {
		return scheme.CountNothing, charged
	}
	isThis := c.Voucher.Ceiling == ceiling
	switch {
	case isCounted, c.again && isThis:
		return scheme.CountBefore, *c.Charged
	case isThis:
		return scheme.CountNothing, charged
	}
	return scheme.CountRejected, *c.Charged
}

func judgeTaken(c *wire.ChannelCount, channel string, ceiling, price money.Amount) (scheme.Counted,
	money.Amount) {
	if c == nil || (c.Charged == nil && c.ChargedNow == nil) {
		return scheme.CountCharged, ceiling
	}
	now := price
	if c.ChargedNow != nil {
		now = *c.ChargedNow
	}
	sum, fits := ceiling.SubFloor(price).Add(now)
	isOther := c.ID != "" && c.ID != channel
	if isOther || !fits || now.Cmp(price) > 0 || (c.Charged != nil && *c.Charged != sum) {
		return scheme.CountTooMuch, ceiling
	}
	return scheme.CountCharged, sum
}

// updateBook brings a channel's book up to date with the ends of its payments. The chain is asked about those
// deposits that may be on their way.
func (b *Channels) updateBook(ctx context.Context, c channel) (_ channel, err error) {
	c.book, err = b.withDeposits(ctx, c.book, func(ctx context.Context, id string) (history.Payment, error) {
		p, err := b.Ledger.Payment(ctx, id)
		if err == nil && (p.State == history.Submitted || p.State == history.Unknown) {
			p = b.Engine.AskChain(ctx, p)
		}
		return p, err
	})
	if err != nil {
		return c, err
	}
	var open []history.BatchOpen
	for _, v := range c.book.Vouchers {
		p, err := b.Ledger.Payment(ctx, v.Payment)
		if err != nil {
			return c, err
		}
		switch {
		case p.State == history.Failed && p.ByVoucher():
		case p.State == history.Settled && p.ByVoucher():
			if v.Amount.Cmp(c.Claimed) > 0 {
				c.Claimed = v.Amount
			}
		default: // that its deposit failed says nothing of a voucher
			open = append(open, v)
		}
	}
	c.book.Vouchers = open
	return c, nil
}

// ShownAgain implements scheme.Channelled: of a deposit that the chain has it is the voucher alone, because
// no facilitator takes it twice. A seller that did not hear of the deposit serves for the voucher, and one
// that did says what it counted.
func (b *Channels) ShownAgain(ctx context.Context, p history.Payment) json.RawMessage {
	if p.Prepaid() {
		return p.Payload
	}
	var members map[string]json.RawMessage
	err := json.Unmarshal(p.Payload, &members)
	isBrought := p.State == history.Settled && p.Proof == history.Chain
	if err == nil && p.FromOwners() { // the payment is of a voucher, and says nothing of the deposit
		isBrought, err = b.Chain.IsBrought(ctx, p.Network, members["payload"])
	}
	if err == nil && isBrought {
		members["payload"], err = b.Chain.VoucherAlone(p.Network, members["payload"])
	}
	if err != nil {
		b.Log.Error("show a deposit's voucher alone", "payment", p.ID, "err", err)
		return p.Payload
	}
	if !isBrought {
		return p.Payload
	}
	shown, err := json.Marshal(members)
	if err != nil { // of raw messages: cannot fail
		return p.Payload
	}
	return shown
}

func (b *Channels) Count(ctx context.Context, p history.Payment, a scheme.ChannelAnswer) (scheme.Counted,
	error) {
	ctx, cancel := b.Engine.Detached(ctx)
	defer cancel()
	c, err := b.find(ctx, p.Evidence.Channel, b.Chain.Address())
	if err != nil {
		return scheme.CountNothing, err
	}
	asked, err := x402.DecodeRequirement(p.Requirement, 2)
	if err != nil {
		return scheme.CountNothing, err
	}
	n := b.countOf(p, a)
	outcome, charged := judgeCount(n, c.ID, p.Evidence.Ceiling, asked.Amount, c.Claimed)
	if outcome == scheme.CountNothing {
		return outcome, nil
	}
	others := slices.DeleteFunc(slices.Clone(c.book.Vouchers),
		func(o history.BatchOpen) bool { return o.Payment == p.ID })
	if outcome == scheme.CountTooMuch {
		c.Refused = a.Settlement.Raw
	}
	newest := c.signed.Voucher
	if !n.success {
		newest = nil
		if n.own {
			newest = n.Voucher
		}
		if charged.Cmp(c.Claimed) > 0 && c.isRefused(newest, p) {
			c.book.Stopped = "the seller charged a voucher that it had refused"
		}
	}
	c = c.counted(p, outcome, charged, newest)
	if err := b.save(ctx, c); err != nil {
		return scheme.CountNothing, err
	}
	for _, o := range others {
		other, err := b.Ledger.Payment(ctx, o.Payment)
		if err == nil && other.ByVoucher() {
			b.EndVoucher(ctx, other, wasCharged(o.Amount, other.Amount, charged))
		}
	}
	return outcome, nil
}

// isRefused reports whether the seller refused this voucher before: it is one of this ledger, above what was
// charged, not that of p, which was presented now, and not open. The call that it was for may have another
// voucher since, or get one.
func (c channel) isRefused(v *x402.ChannelVoucher, p history.Payment) bool {
	isOpen := func(o history.BatchOpen) bool { return o.Amount == v.Ceiling }
	return v.Ceiling.Cmp(c.Claimed) > 0 && v.Ceiling.Cmp(c.Amount) <= 0 &&
		v.Ceiling != p.Evidence.Ceiling && !slices.ContainsFunc(c.book.Vouchers, isOpen)
}

// wasCharged reports whether a seller that has charged so much in all charged for an earlier voucher of
// ours, the whole price or a part: more than what was promised before it.
func wasCharged(ceiling, price, charged money.Amount) bool {
	return charged.Cmp(ceiling.SubFloor(price)) > 0
}

// countOf is what an answer says of a payment's channel.
func (b *Channels) countOf(p history.Payment, a scheme.ChannelAnswer) count {
	c := count{again: a.Again, success: a.Settlement != nil && a.Settlement.Success}
	var err error
	switch {
	case c.success:
		c.ChannelCount, err = wire.CountOf(*a.Settlement)
	case a.Challenge != nil:
		c.ChannelCount, err = a.Challenge.CorrectiveCount(p.Network)
	}
	if err != nil {
		b.Log.Warn("read what a seller says of a channel", "payment", p.ID, "err", err)
		c.ChannelCount = nil
	}
	c.own = c.ChannelCount != nil && c.Voucher != nil &&
		b.Chain.OwnVoucher(p.Network, p.Evidence.Channel, *c.Voucher)
	return c
}

// counted is a channel after a count: newest is the voucher of ours that it rests on.
func (c channel) counted(p history.Payment, outcome scheme.Counted, charged money.Amount,
	newest *x402.ChannelVoucher) channel {
	c.Claimed, c.book.Vouchers = charged, nil
	if newest != nil && newest.Ceiling == charged {
		c.book.Charged = newest
	}
	isTaken := outcome == scheme.CountCharged || outcome == scheme.CountTooMuch
	if d := c.book.Deposit; isTaken && d != nil && d.Payment == p.ID {
		c.book.Taken, c.book.Deposit = append(c.book.Taken, *d), nil
	}
	if d := c.book.Owners; isTaken && p.FromOwners() && d != nil && d.Signature != "" {
		c.book.Owners = nil // that it is there the chain says, which the next call asks
	}
	if outcome == scheme.CountTooMuch {
		c.book.Stopped = "the seller says that it charged more than the price"
	}
	if !isTaken && newest != nil && charged.Cmp(c.Amount) > 0 {
		c.book.Shown = newest
	}
	return c
}

// EndVoucher implements scheme.Channelled. It frees nothing: what the voucher could spend was counted with
// its deposit, or counts for good.
func (b *Channels) EndVoucher(ctx context.Context, p history.Payment, charged bool) bool {
	ctx, cancel := b.Engine.Detached(ctx)
	defer cancel()
	if !p.State.Unfinished() {
		return p.State == history.Failed
	}
	if !charged && !p.Prepaid() {
		return b.endRefused(ctx, p)
	}
	var err error
	if charged {
		_, err = b.Ledger.Finish(ctx, p.ID, history.Outcome{State: history.Settled, Proof: history.Claimed,
			Note: "the seller's later answer shows that it was charged"})
	} else {
		_, err = b.Guard.Expire(ctx, p, x402.Status{State: x402.Expired,
			Note: "the seller's books show that this voucher was not charged; it counts nothing by itself"})
	}
	if err != nil && !errors.Is(err, history.ErrTransition) {
		b.Log.Error("end a voucher", "payment", p.ID, "err", err)
	}
	return err == nil
}
