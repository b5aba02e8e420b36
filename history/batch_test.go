package history

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A row of a channel takes on what was signed: the number of vouchers grows with each, the highest one never
// falls, and a voucher that the seller showed counts as signed.
func TestAChannelOnlyGoesForward(t *testing.T) {
	row := Channel{ID: "0x01", Amount: money.NewAmount(500)}.
		WithSigned(BatchSigned{}).WithBook(BatchBook{})
	next := must.Get(row.WithVoucher("pay_1", x402.ChannelVoucher{Ceiling: money.NewAmount(300)},
		money.NewAmount(900)))(t)
	require.Equal(t, "500", next.Amount.String())
	require.Equal(t, uint64(1), next.Nonce)
	signed, book, err := next.Batch()
	require.NoError(t, err)
	require.Equal(t, "300", signed.Voucher.Ceiling.String())
	require.Equal(t, "pay_1", signed.Payment)
	require.Equal(t, []BatchOpen{{Payment: "pay_1", Amount: money.NewAmount(300)}}, book.Vouchers)
	require.Equal(t, "900", book.Deposit.Amount.String())

	book.Shown = &x402.ChannelVoucher{Ceiling: money.NewAmount(800)}
	next, err = next.WithBook(book).WithVoucher("pay_2", x402.ChannelVoucher{Ceiling: money.NewAmount(700)},
		money.Amount{})
	require.NoError(t, err)
	require.Equal(t, "800", next.Amount.String())
	_, book, err = next.Batch()
	require.NoError(t, err)
	require.Nil(t, book.Shown)
	require.Len(t, book.Vouchers, 2)

	row.PendingCall = json.RawMessage("no JSON")
	_, err = row.WithVoucher("pay_3", x402.ChannelVoucher{}, money.Amount{})
	requireCode(t, err, x402.LedgerCorrupt)
}

// A decision without caps holds only what was counted with a deposit.
func TestOnlyVouchersNeedNoCaps(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		hold := Hold{Decision: budget.Decision{Prepaid: true}, Payment: Payment{
			Scheme: x402.BatchSettlement, Amount: money.NewAmount(7), Price: 7}}
		require.ErrorContains(t, must.Err(s.Reserve(t.Context(), hold)), "caps")
		hold.Payment.Scheme, hold.Payment.Price = x402.Exact, 0
		require.ErrorContains(t, must.Err(s.Reserve(t.Context(), hold)), "caps")
		hold.Decision.Prepaid, hold.Payment.Scheme = false, x402.BatchSettlement
		require.ErrorContains(t, must.Err(s.Reserve(t.Context(), hold)), "caps")
	})
}

// Vouchers hold nothing of the account that their deposit came from, and are no price to compare with.
func TestVouchersHoldNothing(t *testing.T) {
	p := Payment{Scheme: x402.BatchSettlement, Amount: money.NewAmount(7)}
	require.True(t, p.Prepaid())
	p.Price = 1
	require.False(t, p.Prepaid(), "a deposit")
	p.Price, p.Scheme = 0, x402.Exact
	require.False(t, p.Prepaid())
}

// testBatch is a channel of the agent's own, in which nothing was signed yet.
func testBatch() Channel {
	own := x402.ChannelConfig{Payer: "0xagent", PayerAuthorizer: "0xagent"}
	return Channel{Service: "0x01", Key: "0xagent", Server: "api.example", Network: "eip155:84532",
		Source: "0xagent", ID: "0x01"}.WithSigned(BatchSigned{Config: own}).WithBook(BatchBook{})
}

// A payment by a voucher and its channel's step are submitted together, or neither is.
func TestASubmitTakesItsChannelOn(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		require.NoError(t, s.SaveChannel(t.Context(), testBatch()))
		hold := func(source string) Payment {
			h := testHold(5)
			h.Payment.Scheme, h.Payment.Source = x402.BatchSettlement, source
			return pay(t, s, h, Reserved)
		}
		submit := func(p Payment, c *Channel) error {
			return s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID,
				Channel: c}, testKeyholder())
		}
		on := func(p Payment, from Channel, ceiling uint64) *Channel {
			v := x402.ChannelVoucher{Ceiling: money.NewAmount(ceiling)}
			next := must.Get(from.WithVoucher(p.ID, v, money.NewAmount(5)))(t)
			return &next
		}
		row := func() Channel {
			return must.Get(s.Channel(t.Context(), "0x01", "0xagent"))(t)
		}
		stands := func(p Payment) State {
			p = must.Get(s.Payment(t.Context(), p.ID))(t)
			return p.State
		}
		first, second := hold("0xagent"), hold("0xagent")
		require.NoError(t, submit(first, on(first, testBatch(), 5)))
		require.Equal(t, []any{uint64(1), "5", Submitted},
			[]any{row().Nonce, row().Amount.String(), stands(first)})
		require.ErrorIs(t, submit(second, on(second, testBatch(), 9)), errVoucherConflict)
		require.Equal(t, []any{uint64(1), Reserved}, []any{row().Nonce, stands(second)})
		must.Get(s.Verify(t.Context(), Head{}))(t)

		forge(t, s, `UPDATE channels SET nonce = '0', amount = '0'`)
		err := submit(second, on(second, row(), 5))
		require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "what was promised is remembered: %v", err)
		require.Equal(t, Reserved, stands(second))
	})
}

// What a hold found delegated is noted with it.
func TestAHoldNotesWhatIsDelegated(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		for _, d := range []uint64{9, 10, 7} {
			h := testHold(1)
			h.Payment.Network, h.Funds.Delegated = "solana:x", new(money.NewAmount(d))
			pay(t, s, h, Reserved)
		}
		largest := must.Get(s.RecordDelegation(t.Context(), "solana:x", "0xagent", money.NewAmount(1)))(t)
		require.Equal(t, money.NewAmount(10), largest)
		must.Get(s.Verify(t.Context(), Head{}))(t)
	})
}
