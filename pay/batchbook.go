package pay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// The book of a channel with a deposit: what its seller has charged. A seller's word counts only where it
// costs us nothing, or where it shows a voucher of ours.

// errRecounted says that a voucher was not charged, because the seller counts from another sum, which is in
// the book now: the purchase begins anew, with nothing held.
var errRecounted = errors.New("the seller counts from another sum")

// count is what a seller said after a voucher was shown to it.
type count struct {
	*wire.ChannelCount
	own     bool // the voucher in it is signed by this wallet
	success bool // the payment was taken
	again   bool // the voucher may have been shown before
}

// countOutcome is what a count means for the payment that was shown.
type countOutcome string

const (
	countNothing  countOutcome = ""         // it says nothing that binds: the voucher may be charged still
	countCharged  countOutcome = "charged"  // it was, by this call
	countBefore   countOutcome = "before"   // it was, by an earlier call
	countRejected countOutcome = "rejected" // it was not, and the book is right now
	countTooMuch  countOutcome = "too much" // charged, and more than its price: nothing more is signed
)

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
func judgeCount(c count, channel string, ceiling, price, charged money.Amount) (countOutcome, money.Amount) {
	if c.success {
		return judgeTaken(c.ChannelCount, channel, ceiling, price)
	}
	if c.ChannelCount == nil || c.Charged == nil || c.ID != channel {
		return countNothing, charged
	}
	isCounted := c.again && wasCharged(ceiling, price, *c.Charged)
	if c.Charged.Cmp(charged) <= 0 {
		if isCounted {
			return countBefore, *c.Charged
		}
		return countRejected, *c.Charged
	}
	if c.Voucher == nil || !c.own || c.Charged.Cmp(c.Voucher.Ceiling) > 0 {
		return countNothing, charged
	}
	isThis := c.Voucher.Ceiling == ceiling
	switch {
	case isCounted, c.again && isThis:
		return countBefore, *c.Charged
	case isThis:
		return countNothing, charged
	}
	return countRejected, *c.Charged
}

func judgeTaken(c *wire.ChannelCount, channel string, ceiling, price money.Amount) (countOutcome,
	money.Amount) {
	if c == nil || (c.Charged == nil && c.ChargedNow == nil) {
		return countCharged, ceiling
	}
	now := price
	if c.ChargedNow != nil {
		now = *c.ChargedNow
	}
	sum, fits := ceiling.SubFloor(price).Add(now)
	isOther := c.ID != "" && c.ID != channel
	if isOther || !fits || now.Cmp(price) > 0 || (c.Charged != nil && *c.Charged != sum) {
		return countTooMuch, ceiling
	}
	return countCharged, sum
}

// updateBook brings a channel's book up to date with the ends of its payments. The chain is asked about those
// deposits that may be on their way.
func (e *Engine) updateBook(ctx context.Context, row history.Channel, book history.BatchBook) (
	history.Channel, history.BatchBook, error) {
	book, err := e.withDeposits(ctx, book, func(ctx context.Context, id string) (history.Payment, error) {
		p, err := e.Store.Payment(ctx, id)
		if err == nil && (p.State == history.Submitted || p.State == history.Unknown) {
			p = e.askChain(ctx, p)
		}
		return p, err
	})
	if err != nil {
		return row, book, err
	}
	var open []history.BatchOpen
	for _, v := range book.Vouchers {
		p, err := e.Store.Payment(ctx, v.Payment)
		if err != nil {
			return row, book, err
		}
		switch {
		case p.State == history.Failed && p.ByVoucher():
		case p.State == history.Settled && p.ByVoucher():
			if v.Amount.Cmp(row.Claimed) > 0 {
				row.Claimed = v.Amount
			}
		default: // that its deposit failed says nothing of a voucher
			open = append(open, v)
		}
	}
	book.Vouchers = open
	return row, book, nil
}

// payloadNow is what a seller is shown of a payment, or shown again: of a deposit that the chain has the
// voucher alone, because no facilitator takes it twice. A seller that did not hear of the deposit serves for
// the voucher, and one that did says what it counted.
func (e *Engine) payloadNow(ctx context.Context, p history.Payment, again bool) json.RawMessage {
	if !again || p.Prepaid() {
		return p.Payload
	}
	var members map[string]json.RawMessage
	err := json.Unmarshal(p.Payload, &members)
	isBrought := p.State == history.Settled && p.Proof == history.Chain
	if err == nil && p.FromOwners() { // the payment is of a voucher, and says nothing of the deposit
		isBrought, err = e.Channels.IsBrought(ctx, p.Network, members["payload"])
	}
	if err == nil && isBrought {
		members["payload"], err = e.Channels.VoucherAlone(p.Network, members["payload"])
	}
	if err != nil {
		e.Log.Error("show a deposit's voucher alone", "payment", p.ID, "err", err)
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

// finishBatch records what became of a voucher that was shown to its seller, first in the channel's book.
// The channel is this call's.
func (e *Engine) finishBatch(ctx context.Context, p history.Payment, f facts) (Result, error) {
	v := judge(f)
	outcome, err := e.noteCount(ctx, p, f)
	if err != nil { // the book counts the voucher as charged until it is known
		e.Log.Error("record what a seller charged", "payment", p.ID, "err", err)
	}
	switch {
	case f.settled && outcome == countRejected && p.IdempotencyKey == "":
		// The deposit is in the channel, and no call was charged: this one is, from there.
		e.releaseLease(ctx, p.ID)
		if err := e.Store.Deliver(ctx, p.ID); err == nil {
			f.answer.Release()
			return Result{}, errRecounted
		}
	case f.settled:
	case outcome == countRejected && p.ByVoucher():
		if e.endVoucher(ctx, p, false) {
			f.answer.Release()
			return Result{}, errRecounted
		}
	case outcome == countBefore && p.ByVoucher():
		v = verdict{state: history.Settled, proof: history.Claimed,
			note: "the seller shows that it charged for it; its answer was lost"}
	}
	return e.finish(ctx, p, v, f.answer)
}

// noteCount writes down what a seller's answer says of the channel.
func (e *Engine) noteCount(ctx context.Context, p history.Payment, f facts) (countOutcome, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	row, err := e.ChannelBook.Channel(ctx, p.Evidence.Channel, e.Channels.Address())
	if err != nil {
		return countNothing, err
	}
	asked, err := x402.DecodeRequirement(p.Requirement, 2)
	if err != nil {
		return countNothing, err
	}
	c := e.countOf(p, f)
	outcome, charged := judgeCount(c, row.ID, p.Evidence.Ceiling, asked.Amount, row.Claimed)
	if outcome == countNothing {
		return outcome, nil
	}
	signed, book, err := row.Batch()
	if err != nil {
		return countNothing, err
	}
	others := slices.DeleteFunc(slices.Clone(book.Vouchers),
		func(o history.BatchOpen) bool { return o.Payment == p.ID })
	if outcome == countTooMuch {
		row.Refused = f.answer.Settlement.Raw
	}
	newest := signed.Voucher
	if !c.success {
		newest = c.shown()
		if charged.Cmp(row.Claimed) > 0 && isRefused(newest, p, row, book) {
			book.Stopped = "the seller charged a voucher that it had refused"
		}
	}
	book = counted(book, p, outcome, charged, row.Amount, newest)
	row.Claimed = charged
	if err := e.ChannelBook.SaveChannel(ctx, row.WithBook(book)); err != nil {
		return countNothing, err
	}
	for _, o := range others {
		other, err := e.Store.Payment(ctx, o.Payment)
		if err == nil && other.ByVoucher() {
			e.endVoucher(ctx, other, wasCharged(o.Amount, other.Amount, charged))
		}
	}
	return outcome, nil
}

// isRefused reports whether the seller refused this voucher before: it is one of this ledger, above what was
// charged, not that of p, which was presented now, and not open. The call that it was for may have another
// voucher since, or get one.
func isRefused(v *x402.ChannelVoucher, p history.Payment, row history.Channel, book history.BatchBook) bool {
	isOpen := func(o history.BatchOpen) bool { return o.Amount == v.Ceiling }
	return v.Ceiling.Cmp(row.Claimed) > 0 && v.Ceiling.Cmp(row.Amount) <= 0 &&
		v.Ceiling != p.Evidence.Ceiling && !slices.ContainsFunc(book.Vouchers, isOpen)
}

// wasCharged reports whether a seller that has charged so much in all charged for an earlier voucher of
// ours, the whole price or a part: more than what was promised before it.
func wasCharged(ceiling, price, charged money.Amount) bool {
	return charged.Cmp(ceiling.SubFloor(price)) > 0
}

// countOf is what an answer says of a payment's channel.
func (e *Engine) countOf(p history.Payment, f facts) count {
	said, err := said(f.answer, p.Network)
	if err != nil {
		e.Log.Warn("read what a seller says of a channel", "payment", p.ID, "err", err)
		said = nil
	}
	c := count{ChannelCount: said, again: f.again,
		success: f.answer != nil && f.answer.Settlement != nil && f.answer.Settlement.Success}
	c.own = said != nil && said.Voucher != nil &&
		e.Channels.OwnVoucher(p.Network, p.Evidence.Channel, *said.Voucher)
	return c
}

// shown is the voucher of ours that a seller shows; nil: none.
func (c count) shown() *x402.ChannelVoucher {
	if !c.own {
		return nil
	}
	return c.Voucher
}

// counted is a channel's book after a count: newest is the voucher of ours that it rests on, promised the
// highest one that the ledger knows.
func counted(book history.BatchBook, p history.Payment, outcome countOutcome, charged, promised money.Amount,
	newest *x402.ChannelVoucher) history.BatchBook {
	book.Vouchers = nil
	if newest != nil && newest.Ceiling == charged {
		book.Charged = newest
	}
	isTaken := outcome == countCharged || outcome == countTooMuch
	if isTaken && book.Deposit != nil && book.Deposit.Payment == p.ID {
		book.Taken = append(book.Taken, *book.Deposit)
		book.Deposit = nil
	}
	if isTaken && p.FromOwners() && book.Owners != nil && book.Owners.Signature != "" {
		book.Owners = nil // that it is there the chain says, which the next call asks
	}
	if outcome == countTooMuch {
		book.Stopped = "the seller says that it charged more than the price"
	}
	if !isTaken && newest != nil && charged.Cmp(promised) > 0 {
		book.Shown = newest
	}
	return book
}

// said is what an answer says of a channel; nil: nothing.
func said(a *seller.Answer, network string) (*wire.ChannelCount, error) {
	switch {
	case a == nil:
		return nil, nil
	case a.Settlement != nil && a.Settlement.Success:
		return wire.CountOf(*a.Settlement)
	case a.Challenge != nil:
		return a.Challenge.CorrectiveCount(network)
	}
	return nil, nil
}

// endVoucher ends a payment by a voucher that moved nothing by itself: charged, as the seller's books show,
// or not. It frees nothing: what the voucher could spend was counted with its deposit, or counts for good.
func (e *Engine) endVoucher(ctx context.Context, p history.Payment, charged bool) bool {
	ctx, cancel := detached(ctx)
	defer cancel()
	if !p.State.Unfinished() {
		return p.State == history.Failed
	}
	if !charged && !p.Prepaid() {
		return e.endRefused(ctx, p)
	}
	var err error
	if charged {
		_, err = e.Store.Finish(ctx, p.ID, history.Outcome{State: history.Settled, Proof: history.Claimed,
			Note: "the seller's later answer shows that it was charged"})
	} else {
		_, err = e.Guard.Expire(ctx, p, x402.Status{State: x402.Expired,
			Note: "the seller's books show that this voucher was not charged; it counts nothing by itself"})
	}
	if err != nil && !errors.Is(err, history.ErrTransition) {
		e.Log.Error("end a voucher", "payment", p.ID, "err", err)
	}
	return err == nil
}

// Worth is what a payment is worth: of one by a voucher, which counts nothing by itself, its amount.
func (e *Engine) Worth(p history.Payment) money.Dollars {
	if asset, ok := e.Assets.Asset(p.Network, p.Asset); ok && p.Prepaid() {
		return asset.Dollars(p.Amount)
	}
	return p.Price
}
