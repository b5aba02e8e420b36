package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

const (
	usdcE = "0x20C000000000000000000000b9537d11c60E8b50" // on Tempo
	base  = "eip155:8453"
	usdc  = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" // on Base
	usdt0 = "0x779Ded0c9e1022225f8E0630b35a9b54bE713736" // on Stable, and X Layer
)

// Both forms of x-payment-info (draft-payment-discovery-00, "Payment Offer Object"), and nothing else.
func TestReadOffers(t *testing.T) {
	one := `{"intent":"charge","method":"tempo","amount":"500","currency":"` + usdcE + `"}`
	want := Offer{Method: "tempo", Intent: "charge", Amount: "500", Currency: usdcE}
	require.Equal(t, []Offer{want}, ReadOffers(json.RawMessage(one)))
	require.Equal(t, []Offer{want, {Method: "stripe", Intent: "charge", Currency: "usd"}},
		ReadOffers(json.RawMessage(`{"offers":[`+one+`,{"intent":"charge","method":"stripe","amount":null,`+
			`"currency":"usd","description":"varies","more":7}]}`)))
	for name, bad := range map[string]string{"another kind": `{"price":{"amount":"0.01"},"protocols":["x402"]}`,
		"amount is a number": strings.Replace(one, `"500"`, `500`, 1), "a key twice": one[:1] + `"method":"evm",` + one[1:],
		"another letter case": strings.Replace(one, "method", "Method", 1), "no object": `7`, "null": `null`,
		"nothing": ``, "too many": `{"offers":[` + strings.Repeat(one+",", x402.MaxAccepts) + one + `]}`} {
		require.Empty(t, ReadOffers(json.RawMessage(bad)), name)
	}
}

func TestOptionsOfOffers(t *testing.T) {
	assets := x402.NewRegistry(nil)
	networks := []string{base, x402.SolanaMainnet, "eip155:988", "eip155:196", x402.TempoMainnet}
	charge := func(method, currency string) Offer {
		return Offer{Method: method, Intent: "charge", Amount: "500", Currency: currency}
	}
	r := must.Get(charge("tempo", usdcE).Options(networks, assets))(t)
	require.Len(t, r, 1)
	require.Equal(t, []any{x402.Tempo, x402.TempoMainnet, "500", usdcE, "", true, true},
		[]any{r[0].Way(), r[0].Network, r[0].Amount.String(), r[0].Asset, r[0].PayTo, r[0].Charge.Pull,
			r[0].Charge.SellerPaysFee})
	r = must.Get(charge("evm", usdc).Options(networks, assets))(t)
	require.Equal(t, []any{1, x402.MPP, base}, []any{len(r), r[0].Way(), r[0].Network})
	r = must.Get(charge("evm", usdt0).Options(networks, assets))(t)
	require.Equal(t, []any{2, "eip155:988", "eip155:196"}, []any{len(r), r[0].Network, r[1].Network})
	named := charge("evm", usdc)
	named.Recipient = "0x1111111111111111111111111111111111111111"
	require.Equal(t, named.Recipient, must.Get(named.Options(networks, assets))(t)[0].PayTo)

	for _, untold := range []Offer{{Method: "tempo", Intent: "charge"}, charge("solana", "sol")} {
		require.Empty(t, must.Get(untold.Options(networks, assets))(t), untold)
	}
	for words, o := range map[string]Offer{
		"Stripe": charge("stripe", "usd"), "card's": charge("card", "usd"),
		"Lightning":                   charge("lightning", "BTC"),
		"channel":                     {Method: "tempo", Intent: "session", Amount: "1", Currency: usdcE},
		"this wallet pays evm/charge": charge("hedera", "0.0.1"),
		"another chain":               charge("evm", usdcE), "another chain than": charge("evm", "0x1"),
		"-500":            {Method: "evm", Intent: "charge", Amount: "-500", Currency: usdc},
		"1e40":            {Method: "evm", Intent: "charge", Amount: "1e40", Currency: usdc},
		"0500":            {Method: "evm", Intent: "charge", Amount: "0500", Currency: usdc},
		"256":             {Method: "evm", Intent: "charge", Amount: strings.Repeat("9", 78), Currency: usdc},
		"currency is not": charge("tempo", "a\u202eb"), "currency": charge("tempo", ""),
		"recipient": {Method: "evm", Intent: "charge", Amount: "1", Currency: usdc, Recipient: "a\nb"},
		`\u202e`:    charge("\u202e", "usd"),
	} {
		_, err := o.Options(networks, assets)
		require.ErrorContains(t, err, words, o)
		require.NotContains(t, err.Error(), "\u202e")
	}
}
