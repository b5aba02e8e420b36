package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// The life of one sale by a voucher. What is charged is the price, when the call has run: then the voucher,
// and that it was charged for, are on the disk before the answer leaves, in the transaction that settles the
// sale. Until then nothing is: a call that failed leaves its voucher good for the next one.

// holdMargin is how much longer than its payment a request has a channel.
const holdMargin = 30 * time.Second

// countVoucher compares a voucher with what was charged in its channel. False: the request ends here.
func (s *saleRun) countVoucher(ctx context.Context) bool {
	c := s.signed.channel
	if !c.isRefund() && s.isAskedAgain(ctx) {
		return false
	}
	known, err := s.options.Store.SoldChannel(ctx, s.offer.Network, c.id)
	switch {
	case errors.Is(err, book.ErrNotFound): // its buyer is believed, as the reference server does
		known = book.SoldChannel{Network: s.offer.Network, ID: c.id, Config: c.Config,
			Charged: c.Voucher.Ceiling.SubFloor(s.channelPrice())}
	case err != nil:
		s.bookFailed(err, "the book of sales cannot be read; the payment was not used")
		return false
	}
	return s.expectsVoucher(known)
}

// isAskedAgain answers who asks once more for what this very voucher bought, by its name.
func (s *saleRun) isAskedAgain(ctx context.Context) bool {
	if s.payment.name == "" {
		return false
	}
	earlier, err := s.options.Store.SaleByKey(ctx, s.signed.uniqueKey)
	isSame := err == nil && earlier.State == book.SaleSettled && earlier.Answer != nil &&
		earlier.Identifier == s.payment.name && earlier.Call == s.callHash
	if isSame {
		s.replay(ctx, earlier)
	}
	return isSame
}

// channelPrice is what a voucher has to promise more than was charged.
func (s *saleRun) channelPrice() money.Amount {
	if s.signed.channel.isRefund() {
		return money.Amount{}
	}
	return s.offer.Amount
}

// expectsVoucher reports whether the voucher is for what was charged and the price. Otherwise the buyer is
// told the count.
func (s *saleRun) expectsVoucher(known book.SoldChannel) bool {
	s.channel = &known
	due, fits := known.Charged.Add(s.channelPrice())
	if fits && due == s.signed.channel.Voucher.Ceiling {
		return true
	}
	s.verification = invalid
	s.out.correction = &known
	s.explain(ErrPaymentRejected, batchMismatch)
	return false
}

// checkChannel says why the voucher is not good, of a channel that stands on the chain as a facilitator says.
func (s *saleRun) checkChannel(ctx context.Context, said map[string]json.RawMessage) (refusal string,
	err error) {
	c := s.signed.channel
	if err := takeState(s.channel, said); err != nil {
		return "", err
	}
	held, fits := s.channel.Balance.Add(c.deposited())
	switch {
	case s.channel.WithdrawsAt != 0 && !c.isRefund():
		s.noteWithdrawal(ctx)
		return batchWithdrawn, nil
	case !fits || c.Voucher.Ceiling.Cmp(held) > 0:
		return batchShort, nil
	case s.channel.Voucher.Signature == "" && s.channel.Claimed.Cmp(s.channel.Charged) > 0:
		s.channel.Charged = s.channel.Claimed // that was charged at least, before this book
		if !s.expectsVoucher(*s.channel) {
			return batchMismatch, nil
		}
	}
	return "", nil
}

// noteWithdrawal has what was charged claimed at once, before the buyer has their money back.
func (s *saleRun) noteWithdrawal(ctx context.Context) {
	err := s.options.Store.UpdateSoldChannel(context.WithoutCancel(ctx), s.channel.Network, s.channel.ID, "",
		func(c *book.SoldChannel) { c.WithdrawsAt = s.channel.WithdrawsAt })
	if err != nil {
		s.log.Error("note that a buyer takes their money back", "channel", s.channel.ID, "err", err)
	}
	s.wakeClaims()
}

// open inserts the sale, and holds its channel where it is paid out of one.
func (s *saleRun) open(ctx context.Context, sale book.Sale) (book.Sale, error) {
	if s.channel == nil {
		return s.options.Store.OpenSale(ctx, sale)
	}
	return s.options.Store.OpenChannelSale(ctx, sale, *s.channel, s.signed.expires.Add(holdMargin))
}

// explainHold tells why a channel is not to be had, if that is what err says.
func (s *saleRun) explainHold(err error) (isHold bool) {
	var moved *book.ChannelMoved
	switch {
	case errors.As(err, &moved):
		if s.expectsVoucher(moved.Channel) { // of a channel that another request made known meanwhile
			s.verification = invalid
			s.explain(err, batchBusy)
		}
	case errors.Is(err, book.ErrChannelBusy):
		s.verification = invalid
		s.explain(err, batchBusy)
	default:
		return false
	}
	return true
}

// settleChannel brings the deposit to the chain, if there is one, and charges the voucher.
func (s *saleRun) settleChannel(ctx context.Context) facilitator.Result {
	said := facilitator.Result{Outcome: facilitator.Settled, Settlement: &wire.Settlement{Success: true}}
	if s.signed.channel.Deposit != nil {
		said = s.settleDeposit(ctx)
	}
	if said.Outcome != facilitator.Settled {
		return said
	}
	s.row.Transaction = said.Settlement.Transaction
	if err := s.charge(ctx); err != nil {
		s.row.Note = "the book of sales cannot be written; nothing was charged, and the voucher is still good"
		return facilitator.Result{Outcome: facilitator.NotSent, Err: fmt.Errorf("%w: %w", errBook, err)}
	}
	return said
}

// settleDeposit has the deposit settled. Where nobody says whether it was, the chain does: a voucher that the
// channel covers is as good with it as without.
func (s *saleRun) settleDeposit(ctx context.Context) facilitator.Result {
	said := s.options.Facilitators.Settle(ctx, s.submission())
	switch said.Outcome {
	case facilitator.Settled:
		if settledState(s.channel, said.Settlement) != nil {
			s.channel.Balance, _ = s.channel.Balance.Add(s.signed.channel.deposited())
		}
	case facilitator.Unknown:
		if s.isCovered(ctx) {
			found := &wire.Settlement{Success: true, Amount: s.signed.channel.deposited().String()}
			if said.Settlement != nil {
				found.Transaction = said.Settlement.Transaction
			}
			return facilitator.Result{Outcome: facilitator.Settled, Settlement: found,
				Facilitator: said.Facilitator}
		}
		s.row.Note = "whether the deposit came into the channel is not known; nothing was charged, and the " +
			"voucher is still good"
		return facilitator.Result{Outcome: facilitator.NotSent, Err: said.Err}
	}
	return said
}

// isCovered asks, for as long as a buyer waits, whether the channel covers the voucher without its deposit.
func (s *saleRun) isCovered(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.confirmTimeout)
	defer cancel()
	asked := s.submission()
	asked.Payload = s.payment.withoutDeposit()
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		verdict, err := s.options.Facilitators.Verify(ctx, asked)
		if err == nil && verdict.Valid && takeState(s.channel, verdict.Extra) == nil &&
			s.channel.WithdrawsAt == 0 && s.signed.channel.Voucher.Ceiling.Cmp(s.channel.Balance) <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// charge writes down that the voucher was given for.
func (s *saleRun) charge(ctx context.Context) error {
	charged := *s.channel
	charged.Charged, charged.Voucher = s.signed.channel.Voucher.Ceiling, s.signed.channel.voucher()
	if err := s.options.Store.ChargeChannel(ctx, s.row, charged); err != nil {
		return err
	}
	s.isCharged = true
	s.out.extra = jsonOf(map[string]any{"chargedAmount": s.offer.Amount,
		"channelState": channelState(charged)})
	if s.claimAbove > 0 {
		s.wakeClaims() // enough may be owed now
	}
	return nil
}

// releaseChannel gives the channel back where nothing was charged.
func (s *saleRun) releaseChannel(ctx context.Context, holder string) {
	if s.channel == nil || s.isCharged || holder == "" {
		return
	}
	err := s.options.Store.UpdateSoldChannel(ctx, s.channel.Network, s.channel.ID, holder,
		func(*book.SoldChannel) {})
	if err != nil {
		s.log.Error("give a channel back: it is held until its payment would be too old", "channel",
			s.channel.ID, "err", err)
	}
}
