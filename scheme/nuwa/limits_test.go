package nuwa

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What keeps a call from costing more is named: the owner's limit, the caller's offer, or a person. An offer
// beyond the owner's limits is cut to them.
func TestWhatACallMayNotCost(t *testing.T) {
	for name, c := range map[string]struct {
		tool, offer, perCall string
		code                 x402.Code // "": it is paid
		asked                uint64    // in $0.001, what a person is asked about before; 0: they are not
		command              string    // of the next step
		hint                 string
	}{
		"a generous offer": {tool: "echo", offer: "$50", perCall: "1"},
		"above the owner's limit": {tool: "pricey", offer: "$50", perCall: "1", asked: 1000,
			code: x402.BudgetExceeded, command: "x402-wallet budget set per_call 50.00",
			hint: "a higher maxAmount does not help"},
		"without an offer": {tool: "pricey", perCall: "0.05", code: x402.BudgetExceeded,
			command: "x402-wallet budget set per_call 0.10", hint: "a higher maxAmount does not help"},
		"above the offer": {tool: "echo", offer: "$0.0005", perCall: "1", code: x402.AmountExceedsMax,
			hint: "the owner's limits leave $1.00"},
		"a person is needed": {tool: "pricey", offer: "$50", perCall: "6", asked: 6000},
		"a person is needed, up to an amount": {tool: "pricey", perCall: "6", code: x402.AmountExceedsMax,
			hint: "give maxAmount, the most that it may cost, up to $6.00"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				perCall := must.Get(money.ParseDollars(c.perCall))(t)
				w.rules.PerCall, w.rules.PriceJump, w.rules.Session = perCall, 0, nil
			})
			w.chain.hubs[w.payer] = money.NewAmount(10_000 * price)
			w.open()
			call := func() (pay.Result, error) {
				return w.call(c.tool, func(q *pay.Request) { q.MaxAmount = c.offer })
			}
			r, err := call()
			if c.asked > 0 {
				requireCode(t, x402.ApprovalRequired, err)
				require.Equal(t, money.NewAmount(c.asked*price), x402.AsError(err).Details["amount"], "cut")
				w.approve(err)
				r, err = call()
			}
			if c.code == "" {
				require.NoError(t, err)
				require.Equal(t, pay.StatusPaid, r.Status)
				return
			}
			requireCode(t, c.code, err)
			e := x402.AsError(err)
			require.Contains(t, e.Hint, "nothing was paid")
			require.Contains(t, e.Hint, c.hint)
			require.Equal(t, c.command, e.NextStep().Command)
			require.Zero(t, w.paidFor())
		})
	}
}

// A fee is what the chain says that it takes, and not the most there is; what the chain would undo is not
// sent.
func TestTheChainEstimatesItsFee(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.rules.PerCall = 500_000 + 2_200 // with a whole cent a deposit of half a dollar would not fit
	})
	w.chain.fee = 14_200_000 // $0.00142, and half of that again, in steps of $0.0001
	_, err := w.m.Open(t.Context(), "nuwa", 500_000)
	requireCode(t, x402.ApprovalRequired, err)
	require.Equal(t, money.NewAmount(22_000_000), x402.AsError(err).Details["amount"])
	w.approve(err)
	w.chain.fee += 300_000 // it is a little more by now
	_, err = w.m.Open(t.Context(), "nuwa", 500_000)
	require.True(t, x402.HasCode(err, x402.ApprovalRequired), "the deposit: %v", err)
	require.Equal(t, money.NewAmount(5_022_000_000), x402.AsError(err).Details["amount"])
	w.approve(err)
	must.Get(w.m.Open(t.Context(), "nuwa", 500_000))(t)
	list := must.Get(w.store.Recent(t.Context(), 10))(t)
	require.Equal(t, []money.Dollars{502_200, 2_200}, []money.Dollars{list[0].Price, list[1].Price})

	w.chain.fee = maxGas + 1
	_, err = w.m.Open(t.Context(), "nuwa", 100_000)
	require.Equal(t, money.NewAmount(1_100_000_000), x402.AsError(err).Details["amount"], "at most a cent")
	w.chain.refuse = true
	n := w.chain.calls["rooch_executeRawTransaction"]
	_, err = w.m.Open(t.Context(), "nuwa", 100_000)
	requireCode(t, x402.PaymentRejected, err)
	require.Contains(t, err.Error(), "nothing was sent or paid")
	require.Equal(t, n, w.chain.calls["rooch_executeRawTransaction"])
}

// A service that says itself that it is another one than its origin publishes is not opened a channel to.
func TestTwoNamesStopBeforeTheFee(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.service.saysDiscovery = `{"serviceDid":"` + account{7}.did() + `"}`
	})
	for range 2 {
		require.Contains(t, w.mustRefuse(x402.PayeeChanged, "echo").Hint, "nothing was signed or paid")
	}
	requireCode(t, x402.PayeeChanged, must.Err(w.m.Open(t.Context(), "nuwa", 0)))
	require.Zero(t, w.chain.numbers[w.payer])
	w.service.saysDiscovery = w.service.info()
	w.open()
	w.mustCall("echo")
}

// A tool that fails for nothing was not bought; one that fails and costs says so, and is not made again
// without a thought.
func TestAToolThatFails(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.service.bad = true
	r := w.mustCall("hello")
	require.Equal(t, []any{pay.StatusNotPaid, x402.Change}, []any{r.Status, r.Next.Do})
	require.Zero(t, w.paidFor())

	e := w.mustRefuse(x402.ToolExecutionFailed, "echo")
	require.Contains(t, e.Message, "takes $0.001 for that")
	require.Equal(t, x402.Change, e.NextStep().Do)
	require.True(t, e.Unsafe)
	require.Equal(t, money.NewAmount(price), w.paidFor())
}

// One row for each line of guard's table.
func TestGuard(t *testing.T) {
	last := subRAV{ChainID: 4, Channel: objectID{1}, Epoch: 2, Fragment: "key-1",
		Amount: money.NewAmount(600), Nonce: 6}
	amount := func(n uint64) *money.Amount { a := money.NewAmount(n); return &a }
	good := subRAV{ChainID: 4, Channel: objectID{1}, Epoch: 2, Fragment: "key-1",
		Amount: money.NewAmount(700), Nonce: 7}
	limits := bounds{Cost: amount(100), MaxCost: amount(100), Hub: money.NewAmount(300),
		Claimed: money.NewAmount(400)}

	require.Equal(t, money.NewAmount(100), must.Get(guard(good, last, limits))(t))

	for _, c := range []struct {
		name  string
		spoil func(p *subRAV, b *bounds)
		code  x402.Code
		what  string
	}{
		{"another chain", func(p *subRAV, _ *bounds) { p.ChainID = 1 }, x402.InvalidRequirement, "chain"},
		{"another channel", func(p *subRAV, _ *bounds) {
			p.Channel[31] = 1
		}, x402.InvalidRequirement, "channel"},
		{"another epoch", func(p *subRAV, _ *bounds) { p.Epoch = 3 }, x402.InvalidRequirement, "epoch"},
		{"another key", func(p *subRAV, _ *bounds) { p.Fragment = "key-2" }, x402.InvalidRequirement, "key"},
		{"repeated", func(p *subRAV, _ *bounds) { p.Nonce = 6 }, x402.InvalidRequirement, "nonce"},
		{"rewound", func(p *subRAV, _ *bounds) { p.Nonce = 5 }, x402.InvalidRequirement, "nonce"},
		{"skipped", func(p *subRAV, _ *bounds) { p.Nonce = 8 }, x402.InvalidRequirement, "nonce"},
		{"less than signed for", func(p *subRAV, b *bounds) {
			p.Amount, b.Cost = money.NewAmount(599), nil
		}, x402.InvalidRequirement, "amount"},
		{"a unit more than it costs", func(p *subRAV, b *bounds) {
			p.Amount, b.MaxCost = money.NewAmount(701), nil
		}, x402.InvalidRequirement, "cost"},
		{"a unit less than it costs", func(p *subRAV, _ *bounds) {
			p.Amount = money.NewAmount(699)
		}, x402.InvalidRequirement, "cost"},
		{"above maxAmount", func(_ *subRAV, b *bounds) { b.MaxCost = amount(99) }, x402.AmountExceedsMax, ""},
		{"above maxAmount, of a lost call", func(p *subRAV, b *bounds) {
			p.Amount, b.Cost = money.NewAmount(701), nil
		}, x402.AmountExceedsMax, ""},
		{"above the funds", func(_ *subRAV, b *bounds) {
			b.Hub = money.NewAmount(299)
		}, x402.InsufficientFunds, ""},
		{"above what the payee left", func(_ *subRAV, b *bounds) {
			b.Claimed = money.NewAmount(399)
		}, x402.InsufficientFunds, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, b := good, limits
			c.spoil(&p, &b)
			_, err := guard(p, last, b)
			requireCode(t, c.code, err)
			if c.what != "" {
				require.Equal(t, c.what, x402.AsError(err).Details["guard"])
			}
		})
	}
	good.Nonce, last.Nonce = 0, 1<<64-1
	require.Error(t, must.Err(guard(good, last, limits)), "nonces do not begin again")
}

// After a lost state the chain may know more than this wallet.
func TestBaselineTakesTheLater(t *testing.T) {
	a := subRAV{Epoch: 1, Nonce: 3, Amount: money.NewAmount(30)}
	b := subRAV{Epoch: 1, Nonce: 5, Amount: money.NewAmount(20)}
	require.Equal(t, subRAV{Epoch: 1, Nonce: 5, Amount: money.NewAmount(30)}, a.further(b.Nonce, b.Amount))
	require.Equal(t, a.further(b.Nonce, b.Amount), b.further(a.Nonce, a.Amount))
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "channel")
	if err != nil {
		panic(err)
	}
	testDir = dir
	code := m.Run()
	_ = theWallet().Close()
	_ = os.RemoveAll(dir)
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}
