package paywall

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

const accomplice = "0x857b06519E91e3A54538791bDbb0E22373e36b66"

// asking lets the paywall ask the chain, as the program does.
func asking(l *lab, o *Options) {
	o.Received = func(ctx context.Context, e x402.Evidence) (x402.Status, error) {
		return l.payer.Received(ctx, e)
	}
}

// during lets something happen while the tool runs, that is between verify and settle.
func (l *lab) during(happens func()) {
	given := l.tool
	l.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		happens()
		return given(ctx, r)
	}
}

// useNonce settles another authorization with the nonce that the payer's next payments have.
func (l *lab) useNonce(t *testing.T, c *wire.Challenge, payTo string, amount uint64) {
	t.Helper()
	r := c.Accepts[0]
	r.PayTo, r.Amount = payTo, money.NewAmount(amount)
	r.Raw = replaced(t, r.Raw, l.PayToEVM, payTo)
	r.Raw = replaced(t, r.Raw, `"1000"`, fmt.Sprintf("%q", r.Amount))
	l.payer.settle(t, r, l.payer.signFor(t, c, r, time.Minute, nil))
}

// A buyer signs what is asked, and while the tool runs settles another authorization with the same
// nonce. The seller has nothing for it, and gives nothing: not when the facilitator says that the
// nonce is used, and not when it leaves that open and the chain is asked.
func TestTheNonceIsUsedForSomethingElse(t *testing.T) {
	for name, c := range map[string]struct {
		toSeller bool
		amount   uint64
		fault    string
		state    book.SaleState
	}{
		"to a friend":             {false, 1000, "", book.SaleFailed},
		"less":                    {true, 999, "", book.SaleFailed},
		"more":                    {true, 1001, "", book.SaleFailed},
		"to a friend, in doubt":   {false, 1000, "facilitator fails", book.SaleUnknown},
		"less, in doubt":          {true, 999, "facilitator fails", book.SaleUnknown},
		"to a friend, cut before": {false, 1000, "facilitator cuts before", book.SaleUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, asking)
			l.paywall.confirmTimeout = 300 * time.Millisecond
			ch := l.call(t, nil, nil).challenge()
			l.payer.nonce = [32]byte{1}
			shown := meta(ch, l.payer.sign(t, ch, 0, named))
			payTo := accomplice
			if c.toSeller {
				payTo = l.PayToEVM
			}
			l.during(func() {
				l.useNonce(t, ch, payTo, c.amount)
				if c.fault != "" {
					l.Inject(c.fault, 1)
				}
			})
			for range 2 {
				g := l.call(t, nil, shown)
				require.NotContains(t, fmt.Sprint(string(g.Result), string(g.Data)), product)
				g.asksNothing()
				require.Equal(t, c.state, l.sales(t)[0].State)
			}
			require.EqualValues(t, 1, l.runs.Load())
		})
	}
}

// One payment, shown to two servers of one seller that do not know of each other's books, buys
// at one of them.
func TestOnePaymentTwoBooks(t *testing.T) {
	for i, network := range []string{"EVM", "Solana"} {
		t.Run(network, func(t *testing.T) {
			one := newLab(t, asking)
			one.payer.openSolana(t)
			ch := one.call(t, nil, nil).challenge()
			payload := one.payer.sign(t, ch, 0, nil)
			if i == 1 {
				payload = one.payer.signSolana(t, ch, 1)
			}
			shown := meta(ch, payload)
			other := &lab{Sandbox: one.Sandbox, payer: one.payer}
			var err error
			o := one.paywall.options
			o.Store = testworld.NewBook(t, t.TempDir())
			other.paywall, err = New(o)
			require.NoError(t, err)
			other.paywall.confirmTimeout = 300 * time.Millisecond
			given := one.tool
			other.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				require.Equal(t, product, one.call(t, nil, shown).text)
				return given(ctx, r)
			}
			other.client, _ = connect(t, other.server(), nil)
			g := other.call(t, nil, shown)
			require.NotContains(t, fmt.Sprint(string(g.Result), string(g.Data)), product)
			g.asksNothing()
			require.Len(t, one.Settlements(), 1)
		})
	}
}

type settling func() facilitator.Result

// told is a facilitator whose answer to settle is a test's, on top of what the real one did.
type told struct {
	*facilitator.Client
	settle func(real settling) facilitator.Result
}

func (f told) Settle(ctx context.Context, s facilitator.Submission) facilitator.Result {
	return f.settle(func() facilitator.Result { return f.Client.Settle(ctx, s) })
}

const elsewhereTransaction = "0x4444444444444444444444444444444444444444444444444444444444444444"

// open is the answer of a facilitator that leaves it open, and names a transaction.
func open(transaction string) facilitator.Result {
	return facilitator.Result{Outcome: facilitator.Unknown, Facilitator: "told",
		Settlement: &wire.Settlement{ErrorReason: "settlement_pending", Transaction: transaction}}
}

func always(r facilitator.Result) func(facilitator.Result) facilitator.Result {
	return func(facilitator.Result) facilitator.Result { return r }
}

// What delivers when the facilitator leaves the settlement open: the payment on the chain, by
// the transaction that the facilitator named. Where it named none, only where nobody else sells
// for this address.
func TestWhoseSettlementItWas(t *testing.T) {
	for name, c := range map[string]struct {
		settles       bool // the facilitator does
		says          func(done facilitator.Result) facilitator.Result
		shared, sells bool
	}{
		"named": {true, func(r facilitator.Result) facilitator.Result {
			return open(r.Settlement.Transaction)
		}, false, true},
		"named, otherwise spelt": {true, func(r facilitator.Result) facilitator.Result {
			return open("0x" + strings.ToUpper(r.Settlement.Transaction[2:]))
		}, true, true},
		"none named":                 {true, always(open("")), false, true},
		"none named, shared payee":   {true, always(open("")), true, false},
		"another named":              {true, always(open(elsewhereTransaction)), false, false},
		"another named, not settled": {false, always(open(elsewhereTransaction)), false, false},
		"used before": {true, always(facilitator.Result{Outcome: facilitator.Unknown, UsedBefore: true}),
			false, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(l *lab, o *Options) {
				asking(l, o)
				o.SharedPayTo = c.shared
				o.Facilitators = told{newFacilitators(l.Sandbox), func(real settling) facilitator.Result {
					if !c.settles {
						return c.says(facilitator.Result{})
					}
					return c.says(real())
				}}
			})
			l.paywall.confirmTimeout = time.Minute
			if !c.sells {
				l.paywall.confirmTimeout = 300 * time.Millisecond
			}
			ch := l.call(t, nil, nil).challenge()
			shown := meta(ch, l.payer.sign(t, ch, 0, named))
			for range 2 {
				g := l.call(t, nil, shown)
				if c.sells {
					require.Equal(t, product, g.text)
					continue
				}
				require.NotContains(t, fmt.Sprint(string(g.Result), string(g.Data)), product)
				g.asksNothing()
			}
			require.Equal(t, c.sells, l.sales(t)[0].State == book.SaleSettled, "%s", l.sales(t)[0].State)
			require.EqualValues(t, 1, l.runs.Load())
		})
	}
}

// Settled first, run then: the same theft between verify and settle gets no run.
func TestTheNonceIsUsedBeforeAnUpfrontRun(t *testing.T) {
	l := newLab(t, func(l *lab, o *Options) {
		asking(l, o)
		o.Tools[0].Upfront = true
	})
	ch := l.call(t, nil, nil).challenge()
	l.payer.nonce = [32]byte{1}
	l.paywall.options.Hooks.BeforeSettle = func(context.Context, *Sale) error {
		l.useNonce(t, ch, accomplice, 1000)
		return nil
	}
	g := l.call(t, nil, meta(ch, l.payer.sign(t, ch, 0, nil)))
	require.NotContains(t, fmt.Sprint(string(g.Result), string(g.Data)), product)
	require.EqualValues(t, -32602, g.Code)
	require.Zero(t, l.runs.Load())
	require.Equal(t, book.SaleFailed, l.sales(t)[0].State)
}

// The process dies while it settles, and the nonce goes elsewhere: whoever comes for the answer
// later does not get it. Nor is another payment with the same nonce and name looked up for it.
func TestASaleThatWasLeftAndStolen(t *testing.T) {
	sales := &forgetful{SaleStore: testBook}
	asked := 0
	l := newLab(t, func(l *lab, o *Options) {
		o.Store = sales
		o.Received = func(ctx context.Context, e x402.Evidence) (x402.Status, error) {
			asked++
			return l.payer.Received(ctx, e)
		}
		o.Facilitators = told{newFacilitators(l.Sandbox), func(settling) facilitator.Result {
			sales.dies = true // before a word of it came back
			return facilitator.Result{Outcome: facilitator.Unknown}
		}}
	})
	l.paywall.confirmTimeout, l.paywall.abandonedAfter = 50*time.Millisecond, 0
	ch := l.call(t, nil, nil).challenge()
	l.payer.nonce = [32]byte{1}
	shown := meta(ch, l.payer.sign(t, ch, 0, named))
	longer := meta(ch, l.payer.signFor(t, ch, ch.Accepts[0], 2*time.Minute, named))
	l.call(t, nil, shown)
	require.Equal(t, book.SaleSettling, l.sales(t)[0].State)
	sales.dies = false

	before := asked
	require.EqualValues(t, -32602, l.call(t, nil, longer).Code)
	require.Equal(t, before, asked, "the chain is asked about the payment that was taken")
	l.useNonce(t, ch, accomplice, 1000)
	for range 2 {
		g := l.call(t, nil, shown)
		require.EqualValues(t, -32602, g.Code)
		require.NotContains(t, string(g.Data), product)
		require.NotEqual(t, book.SaleSettled, l.sales(t)[0].State)
	}
	require.Greater(t, asked, before)
}

// The transaction that paid for one sale pays for no other, whoever names it.
func TestOneTransactionTwoSales(t *testing.T) {
	var paidBy string
	l := newLab(t, func(l *lab, o *Options) {
		asking(l, o)
		o.Facilitators = told{newFacilitators(l.Sandbox), func(real settling) facilitator.Result {
			if paidBy != "" {
				return open(paidBy)
			}
			done := real()
			paidBy = done.Settlement.Transaction
			return done
		}}
	})
	l.paywall.confirmTimeout = 50 * time.Millisecond
	require.Equal(t, product, l.buy(t, nil).text)
	g := l.buy(t, nil)
	require.NotContains(t, string(g.Result), product)
	require.Equal(t, book.SaleUnknown, l.sales(t)[0].State)
	require.Len(t, l.Settlements(), 1)
}
