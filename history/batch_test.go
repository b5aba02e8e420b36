package history

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A row of a channel takes on what was signed: the number of vouchers grows with each, the highest one never
// falls, and a voucher that the seller showed counts as signed.
func TestAChannelOnlyGoesForward(t *testing.T) {
	row := Channel{ID: "0x01", Amount: money.NewAmount(500)}.
		WithSigned(BatchSigned{}).WithBook(BatchBook{})
	next, err := row.WithVoucher("pay_1", x402.ChannelVoucher{Ceiling: money.NewAmount(300)},
		money.NewAmount(900))
	require.NoError(t, err)
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
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
}

// A decision without caps holds only what was counted with a deposit.
func TestOnlyVouchersNeedNoCaps(t *testing.T) {
	store, _, _ := newStore(t)
	hold := Hold{Decision: budget.Decision{Prepaid: true}, Payment: Payment{
		Scheme: x402.BatchSettlement, Amount: money.NewAmount(7), Price: 7}}
	_, err := store.Reserve(t.Context(), hold)
	require.ErrorContains(t, err, "caps")
	hold.Payment.Scheme, hold.Payment.Price = x402.Exact, 0
	_, err = store.Reserve(t.Context(), hold)
	require.ErrorContains(t, err, "caps")
	hold.Decision.Prepaid, hold.Payment.Scheme = false, x402.BatchSettlement
	_, err = store.Reserve(t.Context(), hold)
	require.ErrorContains(t, err, "caps")
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
