package channel

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// One row for each line of guard's table.
func TestGuard(t *testing.T) {
	last := subRAV{ChainID: 4, Channel: objectID{1}, Epoch: 2, Fragment: "key-1",
		Amount: money.NewAmount(600), Nonce: 6}
	amount := func(n uint64) *money.Amount { a := money.NewAmount(n); return &a }
	good := subRAV{ChainID: 4, Channel: objectID{1}, Epoch: 2, Fragment: "key-1",
		Amount: money.NewAmount(700), Nonce: 7}
	limits := bounds{Cost: amount(100), MaxCost: amount(100), Hub: money.NewAmount(300),
		Claimed: money.NewAmount(400)}

	delta, err := guard(good, last, limits)
	require.NoError(t, err)
	require.Equal(t, money.NewAmount(100), delta)

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
			require.True(t, x402.HasCode(err, c.code), "%v", err)
			if c.what != "" {
				require.Equal(t, c.what, x402.AsError(err).Details["guard"])
			}
		})
	}
	good.Nonce, last.Nonce = 0, 1<<64-1
	_, err = guard(good, last, limits)
	require.Error(t, err, "nonces do not begin again")
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
