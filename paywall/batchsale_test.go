package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall/book"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/wire"
)

// One deposit, then vouchers alone; what was charged is claimed, and no more.
func TestSellsByBatchSettlement(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	terms := must.Get(channelterms.Of(b.c.Accepts[0]))(t)
	require.Equal(t, []any{24 * time.Hour, "10000"}, []any{terms.WithdrawDelay,
		terms.MinDeposit.String()})
	g := b.pay("deposit", 1000)
	require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
	require.Equal(t, "10000", g.receipt().Amount)
	require.NotEmpty(t, g.receipt().Transaction)
	for n := uint64(2); n <= 4; n++ {
		g = b.pay("voucher", n*1000)
		require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
		require.Empty(t, g.receipt().Transaction)
		count := must.Get(wire.CountOf(*g.receipt()))(t)
		require.Equal(t, []string{fmt.Sprint(n * 1000), "1000", "10000"}, []string{
			count.Charged.String(), count.ChargedNow.String(), count.Balance.String()})
	}
	require.Equal(t, uint64(990_000), l.Balance(b.key.address))
	before := l.Balance(l.PayToEVM)
	require.Equal(t, uint64(4000), l.owed(t))
	done := must.Get(l.paywall.Claim(t.Context()))(t)
	require.Len(t, done, 1)
	require.Equal(t, []any{"4000", 1, 2}, []any{done[0].Amount.String(), done[0].Channels,
		len(done[0].Transactions)})
	require.Equal(t, before+4000, l.Balance(l.PayToEVM))
	require.Zero(t, l.owed(t))
	again := must.Get(l.paywall.Claim(t.Context()))(t)
	require.Empty(t, again)
	require.Equal(t, product, b.pay("voucher", 5000).text, "the channel goes on")
}

// A voucher that was served is answered by the count; the same call under its name by the answer again.
func TestAVoucherThatWasServed(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	n := b.pay("voucher", 1000).isMismatch(t, "1000")
	require.NotNil(t, n.Voucher)
	id := must.Get(evm.ChannelID(sandbox.EVM, b.config))(t)
	require.True(t, evm.IsOwnVoucher(sandbox.EVM, id, *n.Voucher, b.key.address))
	b.pay("voucher", 3000).isMismatch(t, "1000")
	require.EqualValues(t, 1, l.runs.Load())

	shown := b.shown(b.payload("voucher", 2000), named)
	for range 2 {
		g := l.call(t, nil, shown)
		require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
		count := must.Get(wire.CountOf(*g.receipt()))(t)
		require.Equal(t, "2000", count.Charged.String())
	}
	l.call(t, map[string]string{"other": "call"}, shown).isMismatch(t, "2000")
	require.EqualValues(t, 2, l.runs.Load())
	require.Equal(t, uint64(2000), l.owed(t))
}

// Of two who show one voucher at once one is served; the other learns that the channel is busy, or the count.
func TestCopiesOfAVoucherRunOnce(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	l.tool = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(100 * time.Millisecond)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: product}},
			StructuredContent: json.RawMessage(`{"sky":"clear"}`)}, nil
	}
	shown := b.shown(b.payload("voucher", 2000), nil)
	answers := make([]got, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = l.call(t, nil, shown) })
	}
	all.Wait()
	served := 0
	for _, g := range answers {
		if g.text == product {
			served++
		} else {
			require.Contains(t, []string{batchBusy, batchMismatch}, g.challenge().Error)
		}
	}
	require.Equal(t, 1, served)
	require.EqualValues(t, 2, l.runs.Load())
	require.Equal(t, uint64(2000), l.owed(t))
}

// A call that failed is not charged: its voucher is good for the next one, which may have another name.
func TestAFailedCallIsNotCharged(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	given := l.tool
	l.tool = failing("no such city")
	require.True(t, b.pay("deposit", 1000).isError)
	require.Empty(t, l.Settlements(), "no deposit is made for nothing")
	l.tool = given
	require.Equal(t, product, b.pay("deposit", 1000).text)
	l.tool = failing("no such city")
	require.True(t, b.pay("voucher", 2000).isError)
	require.Equal(t, uint64(1000), l.owed(t))
	l.tool = given
	require.Equal(t, product, b.pay("voucher", 2000).text)
	require.Equal(t, uint64(2000), l.owed(t))
}

type fullDisk struct{ *book.Book }

func (fullDisk) ChargeChannel(context.Context, book.Sale, book.SoldChannel) error {
	return errors.New("no space left on device")
}

// What cannot be written down is not given; its deposit is in the channel, and its voucher good.
func TestNothingIsGivenThatIsNotOnDisk(t *testing.T) {
	l := newBatchLab(t, func(_ *lab, o *Options) { o.Store = fullDisk{o.Store.(*book.Book)} })
	b := l.newBuyer(t)
	g := b.pay("deposit", 1000)
	require.NotContains(t, string(g.Result), product)
	g.asksNothing()
	require.Contains(t, g.text, "nothing was charged")
	require.Zero(t, l.owed(t))
	require.Equal(t, uint64(990_000), l.Balance(b.key.address))
	l.paywall.options.Store = l.paywall.options.Store.(fullDisk).Book
	require.Equal(t, product, b.pay("voucher", 1000).text)
	require.Equal(t, uint64(1000), l.owed(t))
}

// A buyer has the rest back, and buys again after another deposit.
func TestARefund(t *testing.T) {
	l := newBatchLab(t, nil)
	b := l.newBuyer(t)
	require.Equal(t, product, b.pay("deposit", 1000).text)
	require.Equal(t, product, b.pay("voucher", 2000).text)
	b.pay("refund", 1000).isMismatch(t, "2000")
	before := l.Balance(l.PayToEVM)

	part := b.payload("refund", 2000)
	part["amount"] = "3000"
	g := l.call(t, nil, b.shown(part, nil))
	require.Contains(t, g.text, "Refund acknowledged", "%s %s", g.Result, g.Data)
	require.Equal(t, uint64(993_000), l.Balance(b.key.address))
	part["amount"] = "0"
	require.Equal(t, batchBadRefund, l.call(t, nil, b.shown(part, nil)).challenge().Error)

	g = b.pay("refund", 2000)
	require.Contains(t, g.text, "Refund acknowledged", "%s %s", g.Result, g.Data)
	require.Equal(t, "5000", g.receipt().Amount)
	require.Equal(t, uint64(998_000), l.Balance(b.key.address))
	require.EqualValues(t, 2, l.runs.Load())
	require.Equal(t, batchNoRest, b.pay("refund", 2000).challenge().Error)

	require.Len(t, must.Get(l.paywall.Claim(t.Context()))(t), 1, "it is claimed, and paid out now")
	require.Equal(t, before+2000, l.Balance(l.PayToEVM))
	require.Equal(t, product, b.pay("deposit", 3000).text)
}

type deafClient struct {
	*facilitator.Client
	settles bool // it does what it is asked
}

func (d deafClient) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	if d.settles {
		d.Client.Settle(ctx, s)
	}
	return facilitator.Result{Outcome: facilitator.Unknown, Err: context.DeadlineExceeded}
}

// A deposit of which nobody says whether it came: where the chain covers the voucher it is served, else not
// charged, and the same payment may come again.
func TestALostDeposit(t *testing.T) {
	for settles, want := range map[bool]uint64{true: 1000, false: 0} {
		t.Run(fmt.Sprint(settles), func(t *testing.T) {
			l := newBatchLab(t, func(l *lab, o *Options) {
				o.Facilitators = deafClient{newFacilitators(l.Sandbox), settles}
			})
			l.paywall.confirmTimeout = time.Minute
			if !settles {
				l.paywall.confirmTimeout = 300 * time.Millisecond
			}
			b := l.newBuyer(t)
			g := b.pay("deposit", 1000)
			require.Equal(t, want, l.owed(t))
			l.paywall.options.Facilitators = newFacilitators(l.Sandbox)
			if settles {
				require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
				return
			}
			g.asksNothing()
			require.Contains(t, g.text, "the voucher is still good")
			own := l.paywall.options.Store.(*book.Book)
			sales, _, _, err := own.Sales(t.Context(), book.SaleFilter{})
			require.NoError(t, err)
			require.Equal(t, book.SaleFailed, sales[0].State)
			require.Equal(t, product, b.pay("deposit", 1000).text)
		})
	}
}
