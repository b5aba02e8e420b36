package paywall

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
)

const someone = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

func options(change func(*Options)) Options {
	o := Options{Facilitators: facilitator.New(facilitator.Options{}), Store: testBook,
		Tools: []Tool{{Name: "a", Accepts: []Option{{Network: "base", PayTo: someone, Price: "0.01"}}}}}
	if change != nil {
		change(&o)
	}
	return o
}

// What can be known to be wrong before the first buyer comes is said then, all of it.
func TestConfigurationFaults(t *testing.T) {
	refused := func(t *testing.T, want string, change func(*Options)) {
		t.Run(want, func(t *testing.T) {
			require.ErrorContains(t, must.Err(New(options(change))), want)
		})
	}
	for want, change := range map[string]func(*Options){
		"two prices":              func(o *Options) { o.Tools = append(o.Tools, o.Tools[0]) },
		"a tool without a name":   func(o *Options) { o.Tools[0].Name = " " },
		"at least one way to pay": func(o *Options) { o.Tools[0].Accepts = nil },
		"either Accepts or Quote": func(o *Options) {
			o.Tools[0].Quote = func(context.Context, Call) ([]Option, error) { return nil, nil }
		},
		"there is no facilitator": func(o *Options) { o.Facilitators = nil },
		"book.Make":               func(o *Options) { o.Store = nil },
		"is no dialect":           func(o *Options) { o.Dialect = "french" },
		"version 3":               func(o *Options) { o.Version = 3 },
		"x402-mcp is version 1":   func(o *Options) { o.Dialect, o.Version = dialectX402MCP, 2 },
		"cloudflare is version 2": func(o *Options) {
			o.Dialect, o.Version = dialectCloudflare, 1
		},
		"good for 15s to 1h0m0s, not for 1s": func(o *Options) { o.Tools[0].MaxTimeout = time.Second },
		"buyers read at most 32":             func(o *Options) { o.Tools[0].Accepts = make([]Option, 33) },
		"option 2 is another one again": func(o *Options) {
			o.Tools[0].Accepts = append(o.Tools[0].Accepts, Option{Network: "8453", PayTo: someone,
				Amount: "10000", Asset: "usdc"})
		},
		"eip155:480 has no name in version 1": func(o *Options) {
			o.Version = 1
			o.Tools[0].Accepts = []Option{{Network: "eip155:480", PayTo: someone, Price: "1"}}
		},
	} {
		refused(t, want, change)
	}
	const (
		keyless = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
		program = "11111111111111111111111111111111"
	)
	for want, o := range map[string]Option{
		`"moon" is no network`:       {Network: "moon", PayTo: someone, Price: "1"},
		`"" is no network`:           {PayTo: someone, Price: "1"},
		"has no asset that is known": {Network: "eip155:999999", PayTo: someone, Price: "1"},
		`"DOGE" is no asset`:         {Network: "base", PayTo: someone, Price: "1", Asset: "DOGE"},
		`"0x1111" is no asset`:       {Network: "base", PayTo: someone, Price: "1", Asset: "0x1111"},
		"no scheme that is sold in":  {Network: "4326", PayTo: someone, Price: "1", Scheme: "auth-capture"},
		"not an EVM address":         {Network: "base", PayTo: "0x12", Price: "1"},
		"wrong EIP-55 checksum": {Network: "base", PayTo: strings.Replace(someone, "B", "b", 1),
			Price: "1"},
		"is no Solana address": {Network: "solana", PayTo: someone, Price: "1"},
		"could never spend":    {Network: "base", PayTo: zeroAddress, Price: "1"},
		`pay_to "` + keyless + `" could never spend what it is paid`: {Network: "solana-devnet",
			PayTo: keyless, Price: "1"},
		`pay_to "` + program + `" could never spend what it is paid`: {Network: "solana",
			PayTo: program, Price: "1"},
		"either a price":          {Network: "base", PayTo: someone},
		"either a price in":       {Network: "base", PayTo: someone, Price: "1", Amount: "1"},
		"not dollars":             {Network: "base", PayTo: someone, Price: "0.0000001"},
		"not a canonical decimal": {Network: "base", PayTo: someone, Amount: "1e3"},
		"the amount is 0":         {Network: "base", PayTo: someone, Amount: "0"},
		"more than a token account can hold": {Network: "solana", PayTo: keyless,
			Amount: "18446744073709551616"},
	} {
		refused(t, want, func(all *Options) { all.Tools[0].Accepts = []Option{o} })
	}
	_, err := New(options(func(o *Options) {
		o.Dialect = "french"
		o.Tools[0].Accepts[0].PayTo = "0x12"
		o.Tools = append(o.Tools, Tool{Name: "b"})
	}))
	for _, want := range []string{"french", `"a"`, `"b"`} {
		t.Run(want, func(t *testing.T) { require.ErrorContains(t, err, want, "all at once") })
	}
}

// Networks by name, chain id and CAIP-2, assets by symbol and address, prices in dollars and atomic
// units: the same offer.
func TestSpellingsOfAnOption(t *testing.T) {
	usdc := "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	for i, o := range []Option{
		{Network: "base", PayTo: someone, Price: "0.01"}, {Network: "8453", PayTo: someone, Price: "$0.01",
			Asset: "usdc"},
		{Network: "eip155:8453", PayTo: "0x209693bc6afc0c5328ba36faf03c514ef312287c", Amount: "10000",
			Asset: usdc},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := must.Get(New(options(func(all *Options) { all.Tools[0].Accepts = []Option{o} })))(t)
			made := w.tools["a"].options[0]
			require.Equal(t, []string{"eip155:8453", someone, "10000", "$0.01", "USDC"},
				[]string{made.Network, made.PayTo, made.Amount.String(), made.Price.Price(),
					made.Asset.Symbol})
			require.Equal(t, map[string]string{"a": "$0.01"}, w.Prices())
		})
	}
	free := must.Get(New(options(func(o *Options) { o.Tools[0].Free, o.Tools[0].Accepts = true, nil })))(t)
	require.Equal(t, map[string]string{"a": ""}, free.Prices())
}

// A facilitator that cannot be reached, or does not settle there, is a warning: it may be up when a
// buyer comes.
func TestCheck(t *testing.T) {
	l := newLab(t, nil)
	require.Empty(t, l.paywall.Check(t.Context()))
	l.Inject("facilitator down", math.MaxInt)
	down, err := New(Options{Tools: l.paywall.options.Tools, Facilitators: newFacilitators(l.Sandbox),
		Store: testBook})
	require.NoError(t, err)
	require.Len(t, down.Check(t.Context()), 2)
	l.Heal()
	elsewhere := must.Get(New(options(func(o *Options) { o.Facilitators = newFacilitators(l.Sandbox) })))(t)
	require.Equal(t, []string{"no facilitator settles version 2 payments on Base (eip155:8453)"},
		elsewhere.Check(t.Context()))
}

// Who pays the fees is asked once, and remembered when the facilitator is down later; where nobody
// ever said, that option is not offered, and the others are.
func TestFeePayer(t *testing.T) {
	l := newLab(t, nil)
	require.Len(t, l.call(t, nil, nil).challenge().Accepts, 2)
	l.Inject("facilitator down", math.MaxInt)
	l.paywall.options.Facilitators = newFacilitators(l.Sandbox) // which remembers nothing
	require.Equal(t, l.FeePayer, l.call(t, nil, nil).challenge().Accepts[1].ExtraString("feePayer"))
	clear(l.paywall.kinds)
	require.Len(t, l.call(t, nil, nil).challenge().Accepts, 1)
	l.paywall.tools["search"].options = l.paywall.tools["search"].options[1:]
	g := l.call(t, nil, nil)
	require.True(t, g.isError)
	g.asksNothing()
}

func TestExtensions(t *testing.T) {
	declared := must.Get(Discovery{}.declare("search", "Weather"))(t)
	l := newLab(t, func(_ *lab, o *Options) {
		o.Tools[0].Extensions = map[string]json.RawMessage{"bazaar": declared}
	})
	c := l.call(t, nil, nil).challenge()
	require.Contains(t, string(c.Extensions["bazaar"]),
		`{"info":{"input":{"description":"Weather","inputSchema":{"type":"object"},"toolName":"search","type":"mcp"}},"schema":`)
	whole := l.payer.sign(t, c, 0, nil)
	g := l.call(t, nil,
		meta(c, json.RawMessage(replaced(t, whole, `"toolName":"search"`, `"toolName":"other"`))))
	require.Contains(t, g.challenge().Error, "extension_echo_mismatch")
	require.Equal(t, product, l.call(t, nil, meta(c, whole)).text)
	require.Equal(t, product,
		l.call(t, nil, meta(c, without(t, l.payer.sign(t, c, 0, nil), "extensions"))).text,
		"no echo is no lie")
}
