package sell

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Whatever a buyer sends, what is taken for the payment of an offer is one, by another reader's account.
func FuzzReadPermit2(f *testing.F) {
	const payTo, payer = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	const settler = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	asset, known := x402.NewRegistry(nil).Named("eip155:84532", "")
	require.True(f, known)
	shop := selling.Shop{Now: func() time.Time { return time.Unix(1740672089, 0) }, Margin: 8 * time.Second}
	var offers []selling.Option
	for _, way := range []selling.Way{Exact{}, &Upto{}} {
		offers = append(offers, selling.Option{Way: way, Network: "eip155:84532", PayTo: payTo, Asset: asset,
			Amount: money.NewAmount(10000)})
	}
	asked := x402.Requirement{MaxTimeout: 5 * time.Minute, Extra: map[string]json.RawMessage{
		"facilitatorAddress": selling.JSON(settler)}}
	for _, o := range offers {
		a := evm.Permit2Authorization{From: payer, To: payTo, Token: o.Asset.Address, Amount: o.Amount,
			Spender: evm.ExactProxy, Deadline: 1740672149}
		if o.Way.Traits().IsMetered {
			a.Spender, a.Facilitator = evm.UptoProxy, settler
		}
		text, err := payload.EncodePermit2Authorization(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(`{"signature":"0x` + strings.Repeat("11",
			65) + `","permit2Authorization":` + string(text) + `}`))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, o := range offers {
			s, err := o.Way.Read(selling.Shown{Option: o, Asked: asked, Version: 2, Payload: payload}, shop)
			if err != nil {
				continue
			}
			var said struct {
				Authorization struct {
					Permitted struct{ Token, Amount string }
					Spender   string
					Witness   struct{ To, Facilitator string }
				} `json:"permit2Authorization"`
			}
			require.NoError(t, json.Unmarshal(payload, &said))
			a := said.Authorization
			spender, facilitator := evm.ExactProxy, ""
			if o.Way.Traits().IsMetered {
				spender, facilitator = evm.UptoProxy, settler
			}
			for _, same := range [][2]string{{a.Permitted.Token, o.Asset.Address}, {a.Permitted.Amount,
				"10000"},
				{a.Spender, spender}, {a.Witness.To, payTo}, {a.Witness.Facilitator, facilitator}} {
				require.True(t, strings.EqualFold(same[0], same[1]), "%s is not %s", same[0], same[1])
			}
			require.NotEmpty(t, s.Payer)
			require.Equal(t, o.Way.Traits().Name, s.Evidence.Way)
			require.True(t, s.Expires.After(shop.Now()))
		}
	})
}
