package book

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/history/sqldb"
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

func (e *ChannelMoved) Error() string { return "the channel was charged meanwhile" }

func (c SoldChannel) Owed() money.Amount { return c.Charged.SubFloor(c.Claimed) }

// isEmpty reports whether a channel never was charged, and need not be remembered.
func (c SoldChannel) isEmpty() bool {
	return c.Holder == "" && c.Voucher.Signature == "" && c.OwedSince.IsZero()
}

// heldBy is the channel with another holder, or none.
func (c SoldChannel) heldBy(holder string, until time.Time) SoldChannel {
	c.Holder, c.HeldUntil = holder, until
	return c
}

// free is the channel in nobody's hands, for a request that saw it as seen, with what the facilitator told
// that one.
func (c SoldChannel) free(seen SoldChannel, now time.Time) (SoldChannel, error) {
	switch {
	case c.Holder != "" && now.Before(c.HeldUntil):
		return c, ErrChannelBusy
	case c.Charged != seen.Charged:
		return c, &ChannelMoved{Channel: c}
	}
	return c.onChain(seen).heldBy("", time.Time{}), nil
}

// onChain is the channel with what the facilitator said of another one's state: what was claimed only grows.
func (c SoldChannel) onChain(at SoldChannel) SoldChannel {
	c.Balance, c.Refunds, c.WithdrawsAt = at.Balance, at.Refunds, at.WithdrawsAt
	if at.Claimed.Cmp(c.Claimed) > 0 {
		c.Claimed = at.Claimed
	}
	return c
}

// charge is the channel after a sale that holds it: with the charge and the voucher of to, and free.
func (c SoldChannel) charge(to SoldChannel, sale string, now time.Time) (SoldChannel, error) {
	switch {
	case c.Holder != sale:
		return c, ErrChannelBusy
	case to.Voucher.Ceiling.Cmp(to.Charged) < 0 || to.Charged.Cmp(c.Charged) < 0:
		return c, fmt.Errorf("a charge of %s after %s, by a voucher for %s", to.Charged, c.Charged,
			to.Voucher.Ceiling)
	}
	c = c.onChain(to).heldBy("", time.Time{})
	c.Charged, c.Voucher = to.Charged, to.Voucher
	if c.OwedSince.IsZero() {
		c.OwedSince = now
	}
	return c, nil
}

const selectSoldChannel = `SELECT network, channel, config, charged, ceiling, signature, balance, claimed,
	refunds, withdraws_at, holder, held_until, owed_since FROM sold_channels`

func scanSoldChannel(row sqldb.Row) (c SoldChannel, err error) {
	var config string
	var until, owed int64
	err = row.Scan(&c.Network, &c.ID, &config, &c.Charged, &c.Voucher.Ceiling, &c.Voucher.Signature,
		&c.Balance, &c.Claimed, &c.Refunds, &c.WithdrawsAt, &c.Holder, &until, &owed)
	if err != nil {
		return c, err
	}
	c.HeldUntil, c.OwedSince = sqldb.FromMicros(until), sqldb.FromMicros(owed)
	if err := json.Unmarshal([]byte(config), &c.Config); err != nil {
		return c, sqldb.Damaged("read a channel's config", err)
	}
	return c, nil
}

// soldChannel is a channel as it stands; ErrNotFound.
func (t *tx) soldChannel(network, id string) (SoldChannel, error) {
	c, err := scanSoldChannel(t.Row(selectSoldChannel+` WHERE network = ? AND channel = ?`, network, id))
	return c, sqldb.Otherwise(err, errNoChannel)
}

func (t *tx) putSoldChannel(c SoldChannel) error {
	config, err := json.Marshal(c.Config)
	if err != nil {
		return err
	}
	_, err = t.Exec(`INSERT INTO sold_channels (network, channel, config, charged, ceiling, signature,
		balance, claimed, refunds, withdraws_at, holder, held_until, owed_since)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (network, channel) DO UPDATE SET config = excluded.config,
			charged = excluded.charged, ceiling = excluded.ceiling,
			signature = excluded.signature, balance = excluded.balance, claimed = excluded.claimed,
			refunds = excluded.refunds, withdraws_at = excluded.withdraws_at, holder = excluded.holder,
			held_until = excluded.held_until, owed_since = excluded.owed_since`,
		c.Network, c.ID, string(config), c.Charged, c.Voucher.Ceiling, c.Voucher.Signature, c.Balance,
		c.Claimed, c.Refunds, c.WithdrawsAt, c.Holder, sqldb.Micros(c.HeldUntil), sqldb.Micros(c.OwedSince))
	return err
}

// SoldChannel returns a channel, or ErrNotFound.
func (b *Book) SoldChannel(ctx context.Context, network, id string) (SoldChannel, error) {
	return read(ctx, b, func(t *tx) (SoldChannel, error) { return t.soldChannel(network, id) })
}

// OwedChannels returns those out of which not all that was charged has been paid out, the oldest debt first.
func (b *Book) OwedChannels(ctx context.Context) ([]SoldChannel, error) {
	return read(ctx, b, func(t *tx) ([]SoldChannel, error) {
		return sqldb.Collect(t.Tx, scanSoldChannel,
			selectSoldChannel+` WHERE owed_since > 0 ORDER BY owed_since`)
	})
}

// OpenChannelSale opens a sale that a voucher pays, as OpenSale does, and gives it the channel until then:
// what was charged has to be as c has it (*ChannelMoved), and nobody may hold the channel (ErrChannelBusy).
// A channel that is not known yet is known afterwards. What the facilitator said of it is taken from c.
func (b *Book) OpenChannelSale(ctx context.Context, sale Sale, c SoldChannel, until time.Time) (
	Sale, error) {
	sale.State = SaleRunning
	err := b.write(ctx, func(t *tx) error {
		if err := b.beginSale(t); err != nil {
			return err
		}
		free, err := t.freeChannel(c)
		if err == nil {
			err = t.insertSale(&sale)
		}
		if err != nil {
			return err
		}
		return t.putSoldChannel(free.heldBy(sale.ID, until))
	})
	return sale, err
}

// HoldChannel gives a channel to a request that is no sale, on the terms of OpenChannelSale.
func (b *Book) HoldChannel(ctx context.Context, c SoldChannel, holder string, until time.Time) error {
	return b.write(ctx, func(t *tx) error {
		free, err := t.freeChannel(c)
		if err != nil {
			return err
		}
		return t.putSoldChannel(free.heldBy(holder, until))
	})
}

// freeChannel is a channel that nobody holds, for a request that saw it as c. It is taken away from a request
// whose process is taken for dead, and that one's sale is ended, so that its voucher is good for another one.
func (t *tx) freeChannel(c SoldChannel) (SoldChannel, error) {
	known, err := t.soldChannel(c.Network, c.ID)
	if errors.Is(err, ErrNotFound) {
		return c, nil
	}
	if err == nil {
		c, err = known.free(c, t.Now)
	}
	if err == nil {
		err = t.endSaleOf(known.Holder)
	}
	return c, err
}

// endSaleOf ends a sale that was not charged for: its voucher is good for another one.
func (t *tx) endSaleOf(holder string) error {
	_, err := t.Exec(`UPDATE sales SET unique_key = unique_key || ' ' || id, updated_at = ?,
		state = CASE WHEN state IN ('running', 'settling') THEN 'failed' ELSE state END
		WHERE id = ? AND state <> 'settled'`, sqldb.Micros(t.Now), holder)
	return err
}

// ChargeChannel settles a sale by its voucher: in one transaction the sale is settled, and the channel has
// the charge and the voucher of c, and is free. ErrChannelBusy: the sale holds the channel no more. It is
// durable before it returns, so that what was given can be claimed.
func (b *Book) ChargeChannel(ctx context.Context, sale Sale, c SoldChannel) error {
	sale.State = SaleSettled
	return b.write(ctx, func(t *tx) error {
		known, err := t.soldChannel(c.Network, c.ID)
		if err == nil {
			known, err = known.charge(c, sale.ID, t.Now)
		}
		if err != nil {
			return err
		}
		if err := t.moveSale(sale); err != nil {
			return err
		}
		return t.putSoldChannel(known)
	})
}

// UpdateSoldChannel changes what is known of a channel, in one transaction, durably. It ends a hold of
// holder's, if that is one. A channel that never was charged is forgotten then.
func (b *Book) UpdateSoldChannel(ctx context.Context, network, id, holder string,
	change func(*SoldChannel)) error {
	return b.write(ctx, func(t *tx) error {
		c, err := t.soldChannel(network, id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		change(&c)
		if holder != "" && c.Holder == holder {
			c = c.heldBy("", time.Time{})
			if err := t.endSaleOf(holder); err != nil {
				return err
			}
		}
		if c.isEmpty() {
			_, err := t.Exec(`DELETE FROM sold_channels WHERE network = ? AND channel = ?`, network, id)
			return err
		}
		return t.putSoldChannel(c)
	})
}
