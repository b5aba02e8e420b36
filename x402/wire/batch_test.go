package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// receipt is what the reference server 2.27 answers a voucher with.
const batchReceipt = `{"success":true,"payer":"0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266","transaction":"",
	"network":"eip155:84532","amount":"","extra":{"chargedAmount":"1000","channelState":{"channelId":"0x01",
	"balance":"5000","totalClaimed":"500","withdrawRequestedAt":0,"refundNonce":"0",
	"chargedCumulativeAmount":"2000"}}}`

func TestTheCountOfAReceipt(t *testing.T) {
	s := must.Get(DecodeSettlement([]byte(batchReceipt)))(t)
	n := must.Get(CountOf(*s))(t)
	require.Equal(t, "0x01", n.ID)
	require.Equal(t, []string{"2000", "1000", "5000"}, []string{n.Charged.String(), n.ChargedNow.String(),
		n.Balance.String()})
	require.Nil(t, n.Voucher)

	none := must.Get(CountOf(x402.Settlement{Raw: []byte(`{"success":true}`)}))(t)
	require.Nil(t, none)
	for name, text := range map[string]string{
		"a number":         `{"extra":{"channelState":{"chargedCumulativeAmount":2000}}}`,
		"a negative one":   `{"extra":{"channelState":{"chargedCumulativeAmount":"-1"}}}`,
		"an id of blanks":  `{"extra":{"channelState":{"channelId":"a b"}}}`,
		"a time as a text": `{"extra":{"channelState":{"withdrawRequestedAt":"1"}}}`,
		"no object":        `{"extra":{"channelState":"x"}}`,
		"a voucher's list": `{"extra":{"channelState":{},"voucherState":[]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := CountOf(x402.Settlement{Raw: []byte(text)})
			require.Error(t, err)
		})
	}
}

// A voucher is one payment's, whatever it promises; a deposit is known by its authorization.
func TestVouchersAreToldApart(t *testing.T) {
	first := x402.Evidence{Network: "eip155:1", Channel: "0x01", Number: 1, Ceiling: money.NewAmount(5)}
	second := first
	second.Number = 2
	require.True(t, first.IsVoucher())
	require.NotEqual(t, first.Unique(), second.Unique())
	second.Nonce = "0x02"
	require.False(t, second.IsVoucher())
	require.NotEqual(t, first.Unique(), second.Unique())
}

func TestBatchSettlementIsForeignOnOtherNetworks(t *testing.T) {
	r := x402.Requirement{Scheme: x402.BatchSettlement, NetworkName: "eip155:8453"}
	require.Empty(t, r.Foreign())
	r.NetworkName = "cloudflare:402"
	require.Contains(t, r.Foreign(), "EVM networks alone")
	r = x402.Requirement{Scheme: x402.BatchSettlement, NetworkName: "eip155:8453",
		Extra: map[string]json.RawMessage{"name": json.RawMessage(`"GatewayWalletBatched"`)}}
	require.Contains(t, r.Foreign(), "Circle Gateway")
}

// Whatever a seller says of a channel: no panic, and amounts that are none are errors.
func FuzzChannelCount(f *testing.F) {
	f.Add([]byte(batchReceipt))
	f.Add([]byte(`{"extra":{"channelState":{"chargedCumulativeAmount":"1"},` +
		`"voucherState":{"signedMaxClaimable":"2","signature":"0x"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := CountOf(x402.Settlement{Raw: raw})
		if err == nil && n != nil && n.Voucher != nil {
			require.False(t, n.Voucher.Ceiling.IsZero())
		}
		var extra map[string]json.RawMessage
		if json.Unmarshal(raw, &extra) == nil {
			r := x402.Requirement{Scheme: x402.BatchSettlement, Network: "eip155:1", Extra: extra}
			_, _ = r.ChannelTerms()
			_, _ = Challenge{Accepts: []x402.Requirement{r}}.CorrectiveCount("eip155:1")
		}
	})
}
