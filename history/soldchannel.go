package history

import (
	"errors"
	"fmt"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// SoldChannel is a channel of batch-settlement that our paywall is paid out of.
type SoldChannel struct {
	Network, ID string
	Config      x402.ChannelConfig
	Charged     money.Amount        // in all
	Voucher     x402.ChannelVoucher // the newest that something was given for; zero before
	// as the facilitator said last
	Balance, Claimed money.Amount
	Refunds          int64  // the nonce of the next refund
	WithdrawsAt      int64  // when its payer began to take the money back, Unix seconds; 0: they did not
	Holder           string // the sale or refund that is under way; "": none is
	HeldUntil        time.Time
	OwedSince        time.Time // the oldest charge that was not paid out; zero: all was
}

// ErrChannelBusy says that another request for the channel is under way; or, to who holds it, that its time
// was over and another one has it.
var ErrChannelBusy = errors.New("the channel is held by another request")

// ChannelMoved says that a channel was charged otherwise than its caller saw; Channel is how it stands now.
type ChannelMoved struct{ Channel SoldChannel }

// Error implements error.
func (e *ChannelMoved) Error() string { return "the channel was charged meanwhile" }

// Owed is what can be claimed.
func (c SoldChannel) Owed() money.Amount { return c.Charged.SubFloor(c.Claimed) }

// IsEmpty reports whether a channel never was charged, and need not be remembered.
func (c SoldChannel) IsEmpty() bool {
	return c.Holder == "" && c.Voucher.Signature == "" && c.OwedSince.IsZero()
}

// HeldBy is the channel with another holder, or none.
func (c SoldChannel) HeldBy(holder string, until time.Time) SoldChannel {
	c.Holder, c.HeldUntil = holder, until
	return c
}

// Hold is the channel in the hands of a request that saw it as c, with what the facilitator told that one.
func (c SoldChannel) Hold(seen SoldChannel, holder string, until, now time.Time) (SoldChannel, error) {
	switch {
	case c.Holder != "" && now.Before(c.HeldUntil):
		return c, ErrChannelBusy
	case c.Charged != seen.Charged:
		return c, &ChannelMoved{Channel: c}
	}
	return c.onChain(seen).HeldBy(holder, until), nil
}

// onChain is the channel with what the facilitator said of another one's state: what was claimed only grows.
func (c SoldChannel) onChain(at SoldChannel) SoldChannel {
	c.Balance, c.Refunds, c.WithdrawsAt = at.Balance, at.Refunds, at.WithdrawsAt
	if at.Claimed.Cmp(c.Claimed) > 0 {
		c.Claimed = at.Claimed
	}
	return c
}

// Charge is the channel after a sale that holds it: with the charge and the voucher of to, and free.
func (c SoldChannel) Charge(to SoldChannel, sale string, now time.Time) (SoldChannel, error) {
	switch {
	case c.Holder != sale:
		return c, ErrChannelBusy
	case to.Voucher.Ceiling.Cmp(to.Charged) < 0 || to.Charged.Cmp(c.Charged) < 0:
		return c, fmt.Errorf("a charge of %s after %s, by a voucher for %s", to.Charged, c.Charged,
			to.Voucher.Ceiling)
	}
	c = c.onChain(to).HeldBy("", time.Time{})
	c.Charged, c.Voucher = to.Charged, to.Voucher
	if c.OwedSince.IsZero() {
		c.OwedSince = now
	}
	return c, nil
}
