package paywall

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// toolThat is one that does something first.
func (l *permitLab) toolThat(does func(ctx context.Context, result *mcp.CallToolResult)) {
	given := l.lab.tool
	l.lab.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result, err := given(ctx, r)
		does(ctx, result)
		return result, err
	}
}

// What a metered call costs is what its tool says; what nobody says costs the ceiling; and never more.
func TestMeteredCalls(t *testing.T) {
	charge := func(price string) func(context.Context, *mcp.CallToolResult) {
		return func(ctx context.Context, _ *mcp.CallToolResult) { _ = Charge(ctx, price) }
	}
	says := func(value any) func(context.Context, *mcp.CallToolResult) {
		return func(_ context.Context, r *mcp.CallToolResult) {
			r.Meta = mcp.Meta{metaCharge: value, "other": 1}
		}
	}
	for name, test := range map[string]struct {
		does     func(context.Context, *mcp.CallToolResult)
		kilobyte string
		want     string // atomic units, of 100,000
	}{
		"says nothing":        {func(context.Context, *mcp.CallToolResult) {}, "", "100000"},
		"charges":             {charge("0.0123"), "", "12300"},
		"charges a fraction":  {charge("0.0000019"), "", "100000"}, // dollars have six places here
		"charges all":         {charge("0.1"), "", "100000"},
		"charges too much":    {charge("0.100001"), "", "100000"},
		"charges no number":   {charge("much"), "", "100000"},
		"charges nothing":     {charge("0"), "", "0"},
		"by its result":       {says("0.05"), "", "50000"},
		"by its result, $":    {says("$0.05"), "", "50000"},
		"too much, by result": {says("7"), "", "100000"},
		"no text, by result":  {says(0.05), "", "100000"},
		"by the kilobyte":     {func(context.Context, *mcp.CallToolResult) {}, "0.001", "1000"},
		"by kilobytes": {func(_ context.Context, r *mcp.CallToolResult) {
			r.Content = append(r.Content, &mcp.TextContent{Text: strings.Repeat("a", 10<<10)})
		}, "0.001", "11000"},
		"by many kilobytes": {func(_ context.Context, r *mcp.CallToolResult) {
			r.Content = append(r.Content, &mcp.TextContent{Text: strings.Repeat("a", 200<<10)})
		}, "0.001", "100000"},
		"the tool knows better": {charge("0.002"), "0.05", "2000"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newPermitLab(t, func(_ *permitLab, o *Options) { o.Tools[0].PerKilobyte = test.kilobyte })
			l.toolThat(test.does)
			c := l.call(t, nil, nil).challenge()
			g := l.call(t, nil, meta(c, l.buyer.pay(t, c, 1, nil)))
			require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
			require.NotContains(t, g.meta, metaCharge, "that is for the paywall")
			require.Equal(t, test.want, g.receipt().Amount)
			require.True(t, g.receipt().Success)
			sale := l.sales(t)[0]
			require.Equal(t, []any{book.SaleSettled, x402.Upto, test.want}, []any{sale.State, sale.Scheme,
				sale.Amount.String()})
			units, _ := sale.Amount.Uint64()
			require.EqualValues(t, units, sale.Price, "micro-dollars of USDC")
			if test.want == "0" {
				require.Empty(t, l.bank.moved)
				require.Zero(t, l.bank.settles, "there is nothing to settle")
				return
			}
			require.Len(t, l.bank.moved, 1)
			require.Equal(t, test.want, l.bank.moved[0].amount.String())
		})
	}
}

// Nothing charges more than was signed, however it comes about.
func TestChargesAreBounded(t *testing.T) {
	asset, _ := x402.NewRegistry(nil).Named("eip155:84532", "USDC")
	sale := &Sale{Price: "$0.1", meter: &meter{asset: asset, ceiling: money.NewAmount(100_000)}}
	require.Equal(t, "100000", sale.meter.total().String())
	require.ErrorContains(t, sale.Charge("0.100001"), "more than the buyer signed")
	require.False(t, sale.meter.isSet())
	require.ErrorContains(t, sale.Charge("-1"), "charge")
	require.NoError(t, sale.Charge("0.1"))
	require.NoError(t, sale.Charge("$0.05"))
	require.Equal(t, "50000", sale.meter.total().String(), "the last counts")
	sale.meter.set(money.NewAmount(100_001))
	require.Equal(t, "100000", sale.meter.total().String())
	for size, want := range map[int]string{0: "0", 1: "1000", 1024: "1000", 1025: "2000", 100 << 10: "100000",
		1 << 40: "100000"} {
		sale.meter.bySize(size, 1000)
		require.Equal(t, want, sale.meter.total().String(), size)
	}
}

func TestAFixedPriceIsNotMetered(t *testing.T) {
	l := newPermitLab(t, func(_ *permitLab, o *Options) { o.Tools[0].PerKilobyte = "0.0001" })
	l.toolThat(func(ctx context.Context, r *mcp.CallToolResult) {
		require.NoError(t, Charge(ctx, "0.05"))
		r.Meta = mcp.Meta{metaCharge: "0.05"}
	})
	c := l.call(t, nil, nil).challenge()
	g := l.call(t, nil, meta(c, l.buyer.pay(t, c, 0, nil)))
	require.Equal(t, product, g.text)
	require.NotContains(t, g.meta, metaCharge)
	require.Equal(t, "1000", l.bank.moved[0].amount.String())
	require.NoError(t, Charge(t.Context(), "1"), "a free call")
}

// A call that cost nothing buys no second one with its permit, and neither does a failed one.
func TestAPermitThatWasChargedNothing(t *testing.T) {
	l := newPermitLab(t, nil)
	l.toolThat(func(ctx context.Context, _ *mcp.CallToolResult) { _ = Charge(ctx, "0") })
	c := l.call(t, nil, nil).challenge()
	shown := meta(c, l.buyer.pay(t, c, 1, nil))
	require.Equal(t, product, l.call(t, nil, shown).text)
	g := l.call(t, nil, shown)
	require.EqualValues(t, -32602, g.Code, "%s", g.Result)
	g.asksNothing()
	require.EqualValues(t, 1, l.runs.Load())
}

// What a metered call costs leaves the paywall before its goods do: a settlement that fails gives nothing.
func TestMeteredGoodsAreWithheld(t *testing.T) {
	for name, test := range map[string]struct {
		fault func(*permitLab, facilitator.Submission) *facilitator.Result
		state book.SaleState
		gives bool
	}{
		"refused, unused": {func(*permitLab, facilitator.Submission) *facilitator.Result {
			return &facilitator.Result{Outcome: facilitator.Refused,
				Settlement: &wire.Settlement{ErrorReason: "no"}}
		}, book.SaleFailed, false},
		"no answer, but it came": {func(l *permitLab, s facilitator.Submission) *facilitator.Result {
			l.bank.settle(s)
			return &facilitator.Result{Outcome: facilitator.Unknown}
		}, book.SaleSettled, true},
		"another amount than asked": {func(l *permitLab, s facilitator.Submission) *facilitator.Result {
			s.Requirements = charging(s.Requirements, money.NewAmount(1))
			said := l.bank.settle(s)
			return &said
		}, book.SaleUnknown, false},
		"a success that says another amount": {func(l *permitLab,
			s facilitator.Submission) *facilitator.Result {
			return &facilitator.Result{Outcome: facilitator.Settled,
				Settlement: &wire.Settlement{Success: true, Transaction: "0x01", Amount: "7"}}
		}, book.SaleUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newPermitLab(t, nil)
			l.toolThat(func(ctx context.Context, _ *mcp.CallToolResult) { _ = Charge(ctx, "0.002") })
			l.bank.fault = func(s facilitator.Submission) *facilitator.Result { return test.fault(l, s) }
			c := l.call(t, nil, nil).challenge()
			g := l.call(t, nil, meta(c, l.buyer.pay(t, c, 1, nil)))
			require.Equal(t, test.state, l.sales(t)[0].State, "%s", g.Result)
			require.Equal(t, test.gives, strings.Contains(string(g.Result), product))
			require.Equal(t, "2000", l.sales(t)[0].Amount.String(), "what the call cost")
		})
	}
}

// A facilitator with several addresses names another one each time: who was told the one before is served,
// who was told none of them is not.
func TestFacilitatorsWithSeveralAddresses(t *testing.T) {
	l := newPermitLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	payload := l.buyer.pay(t, c, 1, nil)
	other := l.buyer.permit(c.Accepts[1])
	other.Facilitator = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	stranger := replaced(t, l.buyer.sign(t, c, c.Accepts[1], other, nil), bankAddress, other.Facilitator)
	l.bank.address = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	require.Equal(t, l.bank.address, l.call(t, nil, nil).challenge().Accepts[1].ExtraString(
		"facilitatorAddress"))
	require.Contains(t, l.call(t, nil, meta(c, stranger)).challenge().Error,
		"no matching payment requirements")
	l.bank.address = bankAddress // it has both keys
	l.bank.fault = func(s facilitator.Submission) *facilitator.Result {
		require.Equal(t, bankAddress, s.FeePayer)
		require.True(t, s.Sticky)
		return nil
	}
	require.Equal(t, product, l.call(t, nil, meta(c, payload)).text)
}

func TestWhatCannotBeMetered(t *testing.T) {
	upto := []Option{{Network: "84532", PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Price: "1",
		Scheme: "upto"}}
	exact := []Option{{Network: "84532", PayTo: upto[0].PayTo, Price: "1"}}
	for says, tool := range map[string]Tool{
		"not paid upfront":        {Accepts: upto, Upfront: true},
		"for the scheme upto":     {Accepts: exact, PerKilobyte: "0.1"},
		`"no" is no price of`:     {Accepts: upto, PerKilobyte: "no"},
		`"0" is no price of`:      {Accepts: upto, PerKilobyte: "0"},
		`"-0.1" is no price of a`: {Accepts: upto, PerKilobyte: "-0.1"},
	} {
		tool.Name = "a"
		_, err := New(Options{Facilitators: newPermitBank(), Tools: []Tool{tool}})
		require.ErrorContains(t, err, says)
	}
}

// A handler says in a header what its answer costs, or its length decides; the header goes no further.
func TestHandlersAreMetered(t *testing.T) {
	for name, test := range map[string]struct{ header, kilobyte, want string }{
		"by the header": {"0.003", "", "3000"}, "by length": {"", "0.002", "4000"}, "by neither": {"", "",
			"100000"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newPermitLab(t, func(_ *permitLab, o *Options) { o.Tools[0].PerKilobyte = test.kilobyte })
			web := httptest.NewServer(l.paywall.HTTP("search", http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					if test.header != "" {
						w.Header().Set(headerCharge, test.header)
					}
					_, _ = w.Write([]byte(strings.Repeat("a", 1025)))
				})))
			defer web.Close()
			shop := mppShop{l.lab, web}
			asked := shop.get(t, "", "")
			c := must.Get(wire.ReadChallenge(asked.StatusCode, asked.Header, nil))(t)
			paid := shop.get(t, "PAYMENT-SIGNATURE",
				base64.StdEncoding.EncodeToString(l.buyer.pay(t, c, 1, nil)))
			require.Equal(t, http.StatusOK, paid.StatusCode)
			require.Empty(t, paid.Header.Get(headerCharge))
			receipt := must.Get(wire.ReadSettlement(paid.Header))(t)
			require.Equal(t, test.want, receipt.Amount)
			require.Equal(t, test.want, l.bank.moved[0].amount.String())
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// A call that cost nothing makes its visitor no buyer, to whom more is allowed: that would be free.
func TestWhatCostsNothingMakesNoBuyer(t *testing.T) {
	for price, isBuyer := range map[string]bool{"0": false, "0.001": true} {
		t.Run(price, func(t *testing.T) {
			l := newPermitLab(t, func(_ *permitLab, o *Options) {
				o.Hooks.BeforeSettle = func(_ context.Context, sale *Sale) error { return sale.Charge(price) }
			})
			client := l.visits(t, overHTTP(t, l.lab, &Proxy{}, Limits{}), nil)
			c := callBy(t, client, "search", nil).challenge()
			require.Equal(t, product, callBy(t, client, "search", meta(c, l.buyer.pay(t, c, 1, nil))).text)
			_, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello",
				Arguments: map[string]any{"much": strings.Repeat("x", 1<<20)}})
			require.Equal(t, isBuyer, err == nil, "%v", err)
		})
	}
}
