package sell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// The life of one sale by a voucher. What is charged is the price, when the call has run: then the voucher,
// and that it was charged for, are on the disk before the answer leaves, in the transaction that settles the
// sale. Until then nothing is: a call that failed leaves its voucher good for the next one.

// holdMargin is how much longer than its payment a request has a channel.
const holdMargin = 30 * time.Second

// tab is a selling.Tab: a payment and its channel.
type tab struct {
	selling.Shop
	shown   selling.Shown
	payment *payment
	until   time.Time // when a hold of the channel ends

	channel    *book.SoldChannel // as it stands; nil until it was looked up
	correction *book.SoldChannel // told to a buyer who counts otherwise
	isCharged  bool
}

func (t *tab) IsRefund() bool { return t.payment.Type == refund }

// Count implements selling.Tab: it compares the voucher with what was charged in its channel.
func (t *tab) Count(ctx context.Context) error {
	c, network := t.payment, t.shown.Option.Network
	known, err := t.SoldChannel(ctx, network, c.id)
	switch {
	case errors.Is(err, book.ErrNotFound): // its buyer is believed, as the reference server does
		known = book.SoldChannel{Network: network, ID: c.id, Config: c.Config,
			Charged: c.Voucher.Ceiling.SubFloor(t.price())}
	case err != nil:
		return err
	}
	if !t.expects(known) {
		return refuse(mismatch, selling.ErrRejected)
	}
	return nil
}

// refuse is why a channel does not take a payment.
func refuse(why string, cause error) error { return &selling.Refusal{Reason: why, Cause: cause} }

// price is what a voucher has to promise more than was charged.
func (t *tab) price() money.Amount {
	if t.IsRefund() {
		return money.Amount{}
	}
	return t.shown.Option.Amount
}

// expects reports whether the voucher is for what was charged and the price. Otherwise the buyer is told the
// count.
func (t *tab) expects(known book.SoldChannel) bool {
	t.channel = &known
	due, fits := known.Charged.Add(t.price())
	if fits && due == t.payment.Voucher.Ceiling {
		return true
	}
	t.correction = &known
	return false
}

// Check implements selling.Tab, of a channel that stands on the chain as a facilitator says.
func (t *tab) Check(ctx context.Context, said map[string]json.RawMessage) (refusal string, err error) {
	if err := takeState(t.channel, said); err != nil {
		return "", err
	}
	held, fits := t.channel.Balance.Add(t.payment.deposited())
	switch {
	case t.channel.WithdrawsAt != 0 && !t.IsRefund():
		t.noteWithdrawal(ctx)
		return withdrawn, nil
	case !fits || t.payment.Voucher.Ceiling.Cmp(held) > 0:
		return short, nil
	case t.channel.Voucher.Signature == "" && t.channel.Claimed.Cmp(t.channel.Charged) > 0:
		t.channel.Charged = t.channel.Claimed // that was charged at least, before this book
		if !t.expects(*t.channel) {
			return mismatch, nil
		}
	}
	return "", nil
}

// noteWithdrawal has what was charged claimed at once, before the buyer has their money back.
func (t *tab) noteWithdrawal(ctx context.Context) {
	err := t.UpdateSoldChannel(context.WithoutCancel(ctx), t.channel.Network, t.channel.ID, "",
		func(c *book.SoldChannel) { c.WithdrawsAt = t.channel.WithdrawsAt })
	if err != nil {
		t.Log.Error("note that a buyer takes their money back", "channel", t.channel.ID, "err", err)
	}
	t.WakeClaims()
}

func (t *tab) Open(ctx context.Context, sale book.Sale) (book.Sale, error) {
	row, err := t.OpenChannelSale(ctx, sale, *t.channel, t.until)
	return row, t.whyNotHeld(err)
}

// whyNotHeld is a refusal where err says that the channel is not to be had.
func (t *tab) whyNotHeld(err error) error {
	var moved *book.ChannelMoved
	switch {
	case errors.As(err, &moved):
		if !t.expects(moved.Channel) {
			return refuse(mismatch, selling.ErrRejected)
		}
		// of a channel that another request made known meanwhile
	case !errors.Is(err, book.ErrChannelBusy):
		return err
	}
	return refuse(busy, err)
}

// Settle implements selling.Tab: it brings the deposit to the chain, if there is one, and charges the
// voucher.
func (t *tab) Settle(ctx context.Context, as func() facilitator.Submission, sale *book.Sale) (
	c selling.Counted) {
	c.Result = facilitator.Result{Outcome: facilitator.Settled, Settlement: &wire.Settlement{Success: true}}
	if t.payment.Deposit != nil {
		c.Result = t.settleDeposit(ctx, as, sale)
	}
	if c.Outcome != facilitator.Settled {
		return c
	}
	sale.Transaction = c.Settlement.Transaction
	charged := *t.channel
	charged.Charged, charged.Voucher = t.payment.Voucher.Ceiling, t.payment.voucher()
	if err := t.ChargeChannel(ctx, *sale, charged); err != nil {
		sale.Note = "the book of sales cannot be written; nothing was charged, and the voucher is still good"
		c.Result = facilitator.Result{Outcome: facilitator.NotSent,
			Err: fmt.Errorf("%w: %w", selling.ErrBook, err)}
		return c
	}
	t.isCharged = true
	c.Extra = selling.JSON(map[string]any{"chargedAmount": t.shown.Option.Amount,
		"channelState": channelState(charged)})
	return c
}

// settleDeposit has the deposit settled. Where nobody says whether it was, the chain does: a voucher that the
// channel covers is as good with it as without.
func (t *tab) settleDeposit(ctx context.Context, as func() facilitator.Submission,
	sale *book.Sale) facilitator.Result {
	said := t.Facilitators.Settle(ctx, as())
	switch said.Outcome {
	case facilitator.Settled:
		if settledState(t.channel, said.Settlement) != nil {
			t.channel.Balance, _ = t.channel.Balance.Add(t.payment.deposited())
		}
	case facilitator.Unknown:
		if t.isCovered(ctx, as()) {
			found := &wire.Settlement{Success: true, Amount: t.payment.deposited().String()}
			if said.Settlement != nil {
				found.Transaction = said.Settlement.Transaction
			}
			return facilitator.Result{Outcome: facilitator.Settled, Settlement: found,
				Facilitator: said.Facilitator}
		}
		sale.Note = "whether the deposit came into the channel is not known; nothing was charged, and the " +
			"voucher is still good"
		return facilitator.Result{Outcome: facilitator.NotSent, Err: said.Err}
	}
	return said
}

// isCovered asks, for as long as a buyer waits, whether the channel covers the voucher without its deposit.
func (t *tab) isCovered(ctx context.Context, asked facilitator.Submission) bool {
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	asked.Payload = withPayload(t.shown, func(payload map[string]json.RawMessage) {
		payload["type"] = selling.JSON(voucher)
		delete(payload, "deposit")
	})
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		verdict, err := t.Verify(ctx, asked)
		if err == nil && verdict.Valid && takeState(t.channel, verdict.Extra) == nil &&
			t.channel.WithdrawsAt == 0 && t.payment.Voucher.Ceiling.Cmp(t.channel.Balance) <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// Release implements selling.Tab: it gives the channel back.
func (t *tab) Release(ctx context.Context, holder string) {
	if t.channel == nil || t.isCharged || holder == "" {
		return
	}
	err := t.UpdateSoldChannel(ctx, t.channel.Network, t.channel.ID, holder, func(*book.SoldChannel) {})
	if err != nil {
		t.Log.Error("give a channel back: it is held until its payment would be too old", "channel",
			t.channel.ID, "err", err)
	}
}
