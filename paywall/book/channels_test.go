package book

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func testSoldChannel(charged uint64) SoldChannel {
	return SoldChannel{Network: "eip155:84532", ID: "0x01", Config: x402.ChannelConfig{Payer: "0xthem"},
		Charged: money.NewAmount(charged), Balance: money.NewAmount(10_000)}
}

// charged is a channel after a sale by a voucher for ceiling.
func charged(ceiling uint64) SoldChannel {
	c := testSoldChannel(ceiling)
	c.Voucher = x402.ChannelVoucher{Ceiling: money.NewAmount(ceiling), Signature: "0x02"}
	return c
}

func sellByVoucher(t *testing.T, b *Book, clock *clock, key string, before uint64) Sale {
	t.Helper()
	sale := must.Get(b.OpenChannelSale(t.Context(), testSale(key, 1000), testSoldChannel(before),
		clock.now().Add(time.Minute)))(t)
	sale.State = SaleSettling
	require.NoError(t, b.MoveSale(t.Context(), sale))
	return sale
}

// Of many who come with vouchers for one channel at once, in two processes, one has it.
func TestOneHoldsAChannel(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		until := clock.now().Add(time.Minute)
		oneOpens(t, b, func(_ int, b *Book) error {
			return must.Err(b.OpenChannelSale(t.Context(), testSale("1000", 1000), testSoldChannel(0), until))
		}, func(err error) bool { return errors.Is(err, ErrChannelBusy) })
	})
}

// A charge is there after the process, is counted once, and another sale that saw less is refused.
func TestACharge(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		sale := sellByVoucher(t, b, clock, "1000", 0)
		require.NoError(t, b.ChargeChannel(t.Context(), sale, charged(1000)))
		require.ErrorIs(t, b.ChargeChannel(t.Context(), sale, charged(2000)), ErrChannelBusy)

		again := besides(t, b)
		owed := must.Get(again.OwedChannels(t.Context()))(t)
		require.Len(t, owed, 1)
		require.Equal(t, charged(1000).Voucher, owed[0].Voucher)
		require.Equal(t, money.NewAmount(1000), owed[0].Owed())
		require.WithinDuration(t, clock.now(), owed[0].OwedSince, time.Second)
		require.Equal(t, "0xthem", owed[0].Config.Payer)
		require.Equal(t, SaleSettled, must.Get(again.SaleByKey(t.Context(), "1000"))(t).State)

		_, err := b.OpenChannelSale(t.Context(), testSale("x", 1000), testSoldChannel(0), clock.now())
		var moved *ChannelMoved
		require.ErrorAs(t, err, &moved)
		require.Equal(t, money.NewAmount(1000), moved.Channel.Charged)
		require.ErrorIs(t, must.Err(b.SaleByKey(t.Context(), "x")), ErrNotFound)
	})
}

// A charge is covered by its voucher, and never less than before.
func TestAChargeIsCovered(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		require.NoError(t, b.ChargeChannel(t.Context(), sellByVoucher(t, b, clock, "1", 0), charged(1000)))
		sale := sellByVoucher(t, b, clock, "2", 1000)
		over := charged(1000)
		over.Charged = money.NewAmount(1001)
		require.Error(t, b.ChargeChannel(t.Context(), sale, over))
		require.Error(t, b.ChargeChannel(t.Context(), sale, charged(999)))
		require.NoError(t, b.ChargeChannel(t.Context(), sale, charged(2000)))
	})
}

// What held a channel too long lost it: it can charge nothing any more, and its voucher is good for another.
func TestADeadHolderLosesTheChannel(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		lost := sellByVoucher(t, b, clock, "1000", 0)
		clock.set(clock.now().Add(2 * time.Minute))
		sale := sellByVoucher(t, b, clock, "1000", 0)
		require.ErrorIs(t, b.ChargeChannel(t.Context(), lost, charged(1000)), ErrChannelBusy)
		require.NoError(t, b.UpdateSoldChannel(t.Context(), "eip155:84532", "0x01", lost.ID,
			func(*SoldChannel) {}))
		require.NoError(t, b.ChargeChannel(t.Context(), sale, charged(1000)))
		list, _, _, err := b.Sales(t.Context(), SaleFilter{State: SaleFailed})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, lost.ID, list[0].ID)
	})
}

// A sale that charged nothing gives the channel back, and its voucher; of a channel that never was charged
// nothing is left.
func TestAReleasedChannel(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *Book, clock *clock) {
		sale := sellByVoucher(t, b, clock, "1000", 0)
		require.NoError(t, b.UpdateSoldChannel(t.Context(), "eip155:84532", "0x01", sale.ID,
			func(*SoldChannel) {}))
		require.ErrorIs(t, must.Err(b.SoldChannel(t.Context(), "eip155:84532", "0x01")), ErrNotFound)
		sale = sellByVoucher(t, b, clock, "1000", 0)
		require.NoError(t, b.ChargeChannel(t.Context(), sale, charged(1000)))
		until := clock.now().Add(time.Minute)
		require.NoError(t, b.HoldChannel(t.Context(), testSoldChannel(1000), "refund_1", until))
		require.ErrorIs(t, b.HoldChannel(t.Context(), testSoldChannel(1000), "refund_2", until),
			ErrChannelBusy)
		require.NoError(t, b.UpdateSoldChannel(t.Context(), "eip155:84532", "0x01", "refund_1",
			func(c *SoldChannel) { c.Claimed, c.OwedSince = c.Charged, time.Time{} }))
		require.Empty(t, must.Get(b.OwedChannels(t.Context()))(t))
		kept := must.Get(b.SoldChannel(t.Context(), "eip155:84532", "0x01"))(t)
		require.Equal(t, money.NewAmount(1000), kept.Charged)
		require.Empty(t, kept.Holder)
	})
}
