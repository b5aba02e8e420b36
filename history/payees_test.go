package history

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

func payeeKnown(t *testing.T, s *Store, host string, p budget.Payee) budget.PayeeHistory {
	t.Helper()
	f := must.Get(s.Facts(t.Context(), Question{Rules: budget.Query{Host: host, Payee: p}}))(t)
	return f.Payee
}

// What counts as paid, in every state.
func TestRemember(t *testing.T) {
	payee := budget.Payee{Network: "eip155:84532", Asset: "0xasset", PayTo: "0xpayee",
		Resource: "GET api.example/weather"}
	price := money.Dollars(7)
	nothing, all := budget.PayeeHistory{}, budget.PayeeHistory{Paid: true, PaidHere: true, LastPrice: &price}
	for state, want := range map[State]budget.PayeeHistory{Reserved: nothing, Submitted: all, Unknown: all,
		Settled: all} {
		t.Run(fmt.Sprint(state), func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				pay(t, s, testHold(7), state)
				require.Equal(t, want, payeeKnown(t, s, "api.example", payee), state)
			})
		})
	}
	for _, state := range []State{Unknown, Settled} { // proven never to have happened: it was agreed to
		eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
			must.Get(finish(s, pay(t, s, testHold(7), state).ID, Outcome{State: Failed}))(t)
			require.Equal(t, all, payeeKnown(t, s, "api.example", payee))
		})
	}
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		unsent := pay(t, s, testHold(7), Reserved)
		require.NoError(t, s.Release(t.Context(), unsent.ID, "not sent"))
		require.Equal(t, nothing, payeeKnown(t, s, "api.example", payee))
		pay(t, s, testHold(7), Settled)
		elsewhere := all
		elsewhere.PaidHere = false
		require.Equal(t, elsewhere, payeeKnown(t, s, "other.example", payee))
		for i, c := range []struct {
			change func(*budget.Payee)
			want   budget.PayeeHistory
		}{
			{func(p *budget.Payee) { p.PayTo = "0xPAYEE" }, all},
			{func(p *budget.Payee) {
				p.PayTo = "0xother"
			}, budget.PayeeHistory{Other: "0xpayee", LastPrice: &price}},
			{func(p *budget.Payee) { p.Asset = "0xother" }, elsewhere},
			{func(p *budget.Payee) { p.Network = "eip155:8453" }, budget.PayeeHistory{LastPrice: &price}},
			{func(p *budget.Payee) {
				p.Resource = "POST api.example/weather"
			}, budget.PayeeHistory{Paid: true, PaidHere: true}},
		} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				p := payee
				c.change(&p)
				require.Equal(t, c.want, payeeKnown(t, s, "api.example", p))
			})
		}
		onSolana := testHold(7)
		onSolana.Payment.Network, onSolana.Payment.PayTo = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "AbC"
		pay(t, s, onSolana, Settled)
		require.True(t, payeeKnown(t, s, "api.example", budget.Payee{Network: onSolana.Payment.Network,
			PayTo: "AbC"}).Paid)
		require.False(t, payeeKnown(t, s, "api.example", budget.Payee{Network: onSolana.Payment.Network,
			PayTo: "aBC"}).Paid, "base58 has two cases")

		held := testHold(9) // another payee is being paid: one more is a change, as soon as that is signed
		held.Payment.Host, held.Payment.PayTo = "new.example", "0xfirst"
		pay(t, s, held, Reserved)
		require.Empty(t, payeeKnown(t, s, "new.example", payee).Other)
		pay(t, s, held, Submitted)
		require.Equal(t, "0xfirst", payeeKnown(t, s, "new.example", payee).Other)
		held.Payment.Host = "api.example" // the last price, and of any query
		held.Payment.URL += "?city=Lisbon"
		pay(t, s, held, Submitted)
		require.Equal(t, money.Dollars(9), *payeeKnown(t, s, "api.example", payee).LastPrice)
	})
}

// What is compared by price: a tool is named by the fragment, which HTTP requests never have.
func TestResource(t *testing.T) {
	for _, c := range []struct{ method, url, host, want string }{
		{"GET", "https://a.example/x?q=1", "a.example", "GET a.example/x"},
		{"GET", "https://a.example", "a.example", "GET a.example/"},
		{"GET", "https://a.example/x#y", "a.example", "GET a.example/x"},
		{"GET", "https://a.example/%78", "a.example", "GET a.example/x"},
		{"GET", "https://a.example//./y/%2e%2E/x", "a.example", "GET a.example/x"},
		{"GET", "https://a.example/../x/", "a.example", "GET a.example/x/"},
		{"GET", "https://a.example/a%20b/%C3%A9", "a.example", "GET a.example/a%20b/%C3%A9"},
		{"tools/call", "https://a.example/mcp#search", "a.example", "tools/call a.example/mcp#search"},
		{"tools/call", "mcp://weather#a%20b%23c", "weather", "tools/call weather/#a%20b%23c"},
		{"resources/read", "mcp://weather#file:///a", "weather", "resources/read weather/#file:///a"},
		{"initialize", "mcp://weather", "weather", "initialize weather/"},
	} {
		t.Run(c.method, func(t *testing.T) {
			require.Equal(t, c.want, Payment{Method: c.method, URL: c.url, Host: c.host}.Resource())
		})
	}
}
