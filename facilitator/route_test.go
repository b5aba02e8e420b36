package facilitator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
	"x402-wallet/x402/observe"
)

const usdc, eurc = "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "0x808456652fdb597867f38412077A9182bf77359F"

func dollars(t *testing.T, text string) money.Dollars { return must.Get(money.ParseDollars(text))(t) }

// Of the facilitators that the owner gave such a payment the first is asked, and none of the others.
func TestRoutesByAssetAndPrice(t *testing.T) {
	limits := map[string]Limits{
		"small": {Assets: []string{"usdc"}, MaxPrice: dollars(t, "0.05")},
		"large": {Assets: []string{usdc}, MinPrice: dollars(t, "0.05")},
		"euros": {Assets: []string{"EURC"}},
	}
	for _, row := range []struct{ name, asset, symbol, price, to string }{
		{"below", usdc, "USDC", "0.01", "small"},
		{"both bounds are included, and the first in the list goes first", usdc, "USDC", "0.05", "small"},
		{"above", usdc, "USDC", "0.050001", "large"},
		{"by its symbol", eurc, "EURC", "9", "euros"},
		{"of neither", "0x1", "OTHER", "1", ""},
		{"a symbol that a stranger gave another token", "0x1", "", "1", ""},
		{"letter case of an address", "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "", "1", "large"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(map[string]script{"small": {yes}, "large": {yes}, "euros": {yes}})
			var list []Facilitator
			for _, name := range []string{"small", "large", "euros"} {
				list = append(list, Facilitator{Name: name, URL: "https://" + name,
					Networks: []string{sepolia}, Limits: limits[name]})
			}
			c := New(Options{HTTP: &http.Client{Transport: w}, List: list})
			s := evm
			s.Asset, s.Symbol, s.Price = row.asset, row.symbol, dollars(t, row.price)
			r := c.Settle(t.Context(), s)
			if row.to == "" {
				require.Equal(t, NotSent, r.Outcome)
				require.Empty(t, w.asked())
				return
			}
			require.Equal(t, Settled, r.Outcome, "%v", r.Err)
			require.Equal(t, []string{row.to}, w.asked())
		})
	}
}

// On Solana the fee payer is one of a facilitator that takes the payment; what is signed for one goes to who
// holds its key, whatever else was given to them.
func TestTheFeePayerTakesThePayment(t *testing.T) {
	w := newWire(map[string]script{"a": {yes}, "b": {`200 {"success":true,"transaction":"sig","network":"` + devnet + `"}`}})
	kinds := func(payer string) string {
		return `200 {"kinds":[{"x402Version":2,"scheme":"exact","network":"` + devnet +
			`","extra":{"feePayer":"` + payer + `"}}]}`
	}
	w.supported["a"], w.supported["b"] = kinds("FA"), kinds("FB")
	c := New(Options{HTTP: &http.Client{Transport: w}, List: []Facilitator{
		{Name: "a", URL: "https://a", Limits: Limits{MaxPrice: dollars(t, "0.05")}},
		{Name: "b", URL: "https://b", Limits: Limits{MinPrice: dollars(t, "0.05")}}}})
	for price, payer := range map[string]string{"0.01": "FA", "0.10": "FB"} {
		address, who, err := c.FeePayer(t.Context(), Terms{Network: devnet, Price: dollars(t, price)}, 2, nil)
		require.NoError(t, err)
		require.Equal(t, payer, address)
		require.Equal(t, map[string]string{"FA": "a", "FB": "b"}[payer], who)
	}
	s := evm
	s.Network, s.Sticky, s.FeePayer, s.Price = devnet, true, "FB", dollars(t, "0.01")
	r := c.Settle(t.Context(), s)
	require.Equal(t, []any{Settled, "b"}, []any{r.Outcome, r.Facilitator}, "%v", r.Err)
	require.Equal(t, []string{"b"}, w.asked())
}

// Whoever watches hears of each request whether the facilitator is in order: a refusal is an answer.
func TestFacilitatorsAreObserved(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		}
	}
	for name, c := range map[string]struct {
		answers http.HandlerFunc
		came    observe.Outcome
	}{
		"yes":          {status(200, `{"isValid":true}`), observe.Answered},
		"no":           {status(400, `{"isValid":false}`), observe.Answered},
		"who are you":  {status(401, ``), observe.InError},
		"not here":     {status(404, ``), observe.InError},
		"too many":     {status(429, ``), observe.InError},
		"out of order": {status(503, ``), observe.InError},
		"elsewhere":    {status(302, ``), observe.InError},
		"silence": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			observe.NoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answers)
			defer server.Close()
			type seen struct {
				name, request string
				came          observe.Outcome
			}
			var all []seen
			client := New(Options{List: []Facilitator{{Name: "ours", URL: server.URL + "/at",
				Networks: []string{"eip155:84532"}}},
				Observe: func(name, request string, came observe.Outcome, took time.Duration) {
					require.Positive(t, took)
					all = append(all, seen{name, request, came})
				}})
			s := Submission{Network: "eip155:84532", Version: 2, Payload: json.RawMessage(`{}`),
				Requirements: json.RawMessage(`{}`), Validity: time.Minute}
			_, _ = client.Verify(t.Context(), s)
			require.Contains(t, all, seen{"ours", "verify", c.came})

			gone, cancel := context.WithCancel(t.Context())
			cancel()
			before := len(all)
			_, err := client.Verify(gone, s)
			require.Error(t, err)
			require.Len(t, all, before, "who gave up says nothing about it")
		})
	}
}
