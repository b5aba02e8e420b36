package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/foreign"
	"x402-wallet/x402/money"
)

// What we send for the reference client's signed payloads is what it sent, and the seller's option
// is in it to the byte.
func TestVectorsAreEncodedAsTheReferenceDoes(t *testing.T) {
	for name, v := range readVectors(t) {
		t.Run(name, func(t *testing.T) {
			c := v.challenge(t)
			sent := must.JSON[struct {
				Payload    json.RawMessage
				Extensions map[string]json.RawMessage
			}](v.Payload)(t)
			ours := map[string]json.RawMessage{} // as we would say it: only what the seller has not said
			for key, extension := range sent.Extensions {
				e := must.JSON[x402.Object](extension)(t)
				ours[key] = members{{"info", e["info"]}}.object()
			}
			got := must.Get(EncodePayload(c, c.Accepts[0], sent.Payload, ours))(t)
			require.JSONEq(t, string(v.Payload), string(got))

			paid := Attach(c.Dialect, got)
			want := map[int]string{1: v.XPaymentHeader, 2: v.PaymentSignatureHeader}[c.Version]
			require.Equal(t, map[int]string{1: "X-PAYMENT", 2: "PAYMENT-SIGNATURE"}[c.Version], paid.Header)
			theirs := must.Get(base64.StdEncoding.DecodeString(want))(t)
			mine := must.Get(base64.StdEncoding.DecodeString(paid.Value))(t)
			require.JSONEq(t, string(theirs), string(mine))
			if c.Version == 2 {
				require.Contains(t, string(got), `"accepted":`+string(c.Accepts[0].Raw))
			}
		})
	}
}

// encoding/json would compact the white space and escape the angle brackets.
func TestAcceptedIsTheSellersBytes(t *testing.T) {
	odd := entryV2("extra", "{ \"note\" : \"<&>\u2028\",\t\"n\": 1e2, \"payTo\" : 9007199254740993 }")
	c, err := ReadChallenge(402, headers("PAYMENT-REQUIRED", b64(v2(entryV2("amount", `"1"`), odd))), nil)
	require.NoError(t, err)
	got := must.Get(EncodePayload(c, c.Accepts[1], json.RawMessage(`{"signature":"0x"}`), nil))(t)
	require.Contains(t, string(got), `"accepted":`+odd+`}`)
	require.NoError(t, x402.DecodeStrict(got, x402.MaxBody, nil))
	require.Equal(t, odd, string(RequirementJSON(c.Accepts[1])))
}

func TestEncodePayload_LongDescription(t *testing.T) {
	resource := func(description string) string {
		return `{"description":` + string(jsonString(description)) +
			`,"mimeType":"a/b","url":"https://a.example/"}`
	}
	for name, test := range map[string]struct{ description, echoed string }{
		"short":          {"weather", "weather"},
		"the longest":    {strings.Repeat("é", 500), strings.Repeat("é", 500)},
		"one too many":   {strings.Repeat("é", 501), strings.Repeat("é", 500)},
		"beyond the BMP": {strings.Repeat("\U0001F600", 600), strings.Repeat("\U0001F600", 500)},
	} {
		t.Run(name, func(t *testing.T) {
			entry := entryV2("description", string(jsonString(strings.Repeat("e", 900))))
			challenge := `{"x402Version":2,"resource":` + resource(test.description) +
				`,"accepts":[` + entry + `]}`
			c := must.Get(ReadChallenge(402, headers("PAYMENT-REQUIRED", b64(challenge)), nil))(t)
			got := must.Get(EncodePayload(c, c.Accepts[0], json.RawMessage(`{"signature":"0x"}`), nil))(t)
			sent := must.JSON[struct{ Resource, Accepted json.RawMessage }](got)(t)
			require.Equal(t, resource(test.echoed), string(sent.Resource))
			require.Equal(t, entry, string(sent.Accepted))
		})
	}
}

func TestEncodePayloadRefusesWhatIsNoPayload(t *testing.T) {
	c := must.Get(ReadChallenge(402, nil, []byte(v2(entryV2("", "")))))(t)
	for _, bad := range []string{"", "null", `{"a"`, `{} {}`} {
		t.Run(bad, func(t *testing.T) {
			require.Error(t, must.Err(EncodePayload(c, c.Accepts[0], json.RawMessage(bad), nil)), bad)
		})
	}
}

// The X-Payment-Required dialects, where the wallet goes to a facilitator: it gets a whole V2 entry, and
// reads the same in `accepted`.
func TestRequirementForAFacilitator(t *testing.T) {
	full := `{"scheme":"exact","network":"` + x402.SolanaDevnet + `","amount":"500000","asset":"` +
		devnetUSDC + `","payTo":"` + payeeSVM + `","maxTimeoutSeconds":60`
	ask := func(h http.Header) *Challenge {
		return must.Get(ReadChallenge(402, h, nil))(t)
	}
	xProof := func(entry string) *Challenge { return ask(headers("X-Payment-Required", b64(v2(entry)))) }
	for name, c := range map[string]struct {
		challenge      *Challenge
		feePayer, want string
	}{
		"plain":               {ask(plainProof("500000")), "", full + `}`},
		"plain, fee payer":    {ask(plainProof("500000")), "F", full + `,"extra":{"feePayer":"F"}}`},
		"V2 says all":         {xProof(full + `, "x":1}`), "", full + `, "x":1}`},
		"V2, fee payer added": {xProof(full + `}`), "F", full + `,"extra":{"feePayer":"F"}}`},
		"V2, fee payer added to more": {xProof(full + `,"extra":{"memo":"m"}}`), "F", full +
			`,"extra":{"feePayer":"F","memo":"m"}}`},
		"V2 without a timeout": {xProof(strings.Replace(full, `,"maxTimeoutSeconds":60`, "}", 1)), "",
			full + `}`},
		"V2 with a nickname": {xProof(strings.Replace(full, x402.SolanaDevnet, "solana:devnet", 1) + `}`),
			"", full + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.challenge.Accepts[0]
			if c.feePayer != "" {
				extra := map[string]json.RawMessage{"feePayer": jsonString(c.feePayer)}
				for key, value := range r.Extra {
					extra[key] = value
				}
				r.Extra = extra
			}
			require.Equal(t, c.want, string(RequirementJSON(r)))
			payload, err := EncodePayload(c.challenge, r, json.RawMessage(`{"transaction":"AA=="}`), nil)
			require.NoError(t, err)
			require.Contains(t, string(payload), `"accepted":`+c.want+`}`)
			require.True(t, strings.HasPrefix(string(payload),
				`{"x402Version":2,"payload":{"transaction":"AA=="}`))
		})
	}
	require.Equal(t, Attachment{Header: "X-PAYMENT-SIGNATURE", Value: "5sig"}, AttachProof("5sig"))
}

func TestV1IsAnsweredAsV1(t *testing.T) {
	c := must.Get(ReadChallenge(402, headers("PAYMENT-REQUIRED", b64(v1(entryV1("", "")))), nil))(t)
	got := must.Get(EncodePayload(c, c.Accepts[0], json.RawMessage(`{"signature":"0x"}`),
		map[string]json.RawMessage{"x": json.RawMessage("{}")}))(t)
	require.Equal(t, `{"x402Version":1,"scheme":"exact","network":"base","payload":{"signature":"0x"}}`,
		string(got))
	require.Equal(t, "X-PAYMENT", Attach(c.Dialect, got).Header)
	require.JSONEq(t, entryV1("", ""), string(RequirementJSON(c.Accepts[0])))
}

// Everything is said back while it fits; then info without schema; then only what we add to,
// for which the server still compares info.
func TestExtensionsAreEchoedWhileTheyFit(t *testing.T) {
	encode := func(extensions string, ext map[string]json.RawMessage) string {
		c := must.Get(ReadChallenge(402, nil, []byte(`{"x402Version":2,"extensions":`+extensions+
			`,"accepts":[`+entryV2("", "")+`]}`)))(t)
		got := must.Get(EncodePayload(c, c.Accepts[0], json.RawMessage(`{}`), ext))(t)
		require.LessOrEqual(t, len(Attach(c.Dialect, got).Value), maxEcho)
		p := must.JSON[struct{ Extensions json.RawMessage }](got)(t)
		return string(p.Extensions)
	}
	long := `"` + strings.Repeat("s", maxEcho) + `"`
	id := map[string]json.RawMessage{"payment-identifier": json.RawMessage(
		`{"info":{"id":"pay_1","required":false}}`)}

	require.Equal(t, `{"a":{"info":{ "x":1 },"schema":{}},"b":7}`,
		encode(`{"b":7,"a":{"info":{ "x":1 },"schema":{}},"c":null}`, nil))
	require.Equal(t, `{"a":{"info":{ "x":1 }}}`, encode(`{"a":{"info":{ "x":1 },"schema":`+long+
		`},"b":{"schema":{}}}`, nil))
	require.Empty(t, encode(`{"a":{"info":`+long+`}}`, nil))
	require.Equal(t, `{"payment-identifier":{"info":{"id":"pay_1","required":true},"schema":{}}}`,
		encode(`{"payment-identifier":{"info":{"required":true},"schema":{}}}`, id),
		"the seller's word stays, ours is added")
	require.Equal(t, `{"payment-identifier":{"info":{"id":"pay_1","required":true}}}`,
		encode(`{"payment-identifier":{"info":{"required":true}},"a":{"info":`+long+`}}`, id))
	require.Equal(t, `{"payment-identifier":{"info":{"id":"pay_1","required":false}}}`, encode(`{}`, id),
		"not declared: ours alone")
	require.Equal(t, `{"payment-identifier":{"info":[1]}}`, encode(`{"payment-identifier":{"info":[1]}}`, id),
		"nothing to add to")
	require.Equal(t, `{"x":{"info":{"a":1}}}`, encode(`{"x":{"info":{"a":1}}}`,
		map[string]json.RawMessage{"x": json.RawMessage(`null`)}))
	require.Equal(t, `{"x":{"info":{"a":1}}}`, encode(`{"x":{"info":{"a":1}}}`,
		map[string]json.RawMessage{"x": json.RawMessage(`{"info":null}`)}))
	require.Empty(t, encode(`null`, nil))

	// what pays for an approval is compared whole, whatever has to be left out
	approval := map[string]json.RawMessage{x402.EIP2612Sponsoring: json.RawMessage(`{"info":{"nonce":"3"}}`)}
	for _, other := range []string{`{"info":1,"schema":` + long + `}`, `{"info":` + long + `}`} {
		require.Contains(t, encode(
			`{"eip2612GasSponsoring":{"info":{"version":"1"},"schema":{"x":1}},"a":`+other+`}`,
			approval), `"eip2612GasSponsoring":{"info":{"nonce":"3","version":"1"},"schema":{"x":1}}`)
	}
	require.NotContains(t,
		encode(`{"eip2612GasSponsoring":{"info":{"version":"1"},"schema":{"x":1}},"a":{"info":`+long+
			`}}`, nil), "eip2612GasSponsoring", "what is not made use of may be left out")
}

const paidText = `{"success":true,"transaction":"0xabc","network":"eip155:84532","payer":"0xdef"}`

func TestReadSettlement(t *testing.T) {
	paid := Settlement{Success: true, Transaction: "0xabc", Network: "eip155:84532", Payer: "0xdef"}
	for name, c := range map[string]struct {
		pairs []string
		want  Settlement
	}{
		"V2":       {[]string{"PAYMENT-RESPONSE", b64(paidText)}, paid},
		"V1":       {[]string{"X-PAYMENT-RESPONSE", b64(paidText)}, paid},
		"unpadded": {[]string{"payment-response", strings.TrimRight(b64(paidText), "=")}, paid},
		"raw JSON": {[]string{"PAYMENT-RESPONSE", paidText}, paid},
		"the same twice": {[]string{"PAYMENT-RESPONSE", b64(paidText), "PAYMENT-RESPONSE", b64(paidText)},
			paid},
		"both names": {[]string{"PAYMENT-RESPONSE", b64(paidText), "X-PAYMENT-RESPONSE", paidText}, paid},
		"V1 network name": {[]string{"X-PAYMENT-RESPONSE", strings.Replace(paidText, "eip155:84532",
			"base-sepolia", 1)}, paid},
		"refused": {[]string{"PAYMENT-RESPONSE",
			`{"success":false,"transaction":"","network":"eip155:1","errorReason":"settlement_pending","errorMessage":"wait","payer":null}`},
			Settlement{Network: "eip155:1", ErrorReason: "settlement_pending", ErrorMessage: "wait"}},
		"charged less (upto)": {[]string{"PAYMENT-RESPONSE",
			`{"success":true,"transaction":"0x1","amount":"7"}`},
			Settlement{Success: true, Transaction: "0x1", Amount: "7"}},
		"voucher (batch, A.7)": {[]string{"PAYMENT-RESPONSE",
			`{"success":true,"transaction":"","amount":"","extra":{}}`}, Settlement{Success: true}},
		"words of another type": {[]string{"PAYMENT-RESPONSE",
			`{"success":false,"errorReason":{"code":1},"errorMessage":5}`}, Settlement{}},
		"a network nobody knows here": {[]string{"PAYMENT-RESPONSE", `{"success":true,"network":"moon"}`},
			Settlement{Success: true, Network: "moon"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := must.Get(ReadSettlement(headers(c.pairs...)))(t)
			require.NotEmpty(t, got.Raw)
			got.Raw = nil
			require.Equal(t, c.want, *got)
		})
	}
	for i, none := range [][]string{nil, {"PAYMENT-RESPONSE", ""}, {"Content-Type", "text/plain"}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			require.Nil(t, must.Get(ReadSettlement(headers(none...)))(t))
		})
	}
}

// A receipt that cannot be trusted to mean one thing is none.
func TestReadSettlementRefuses(t *testing.T) {
	other := strings.Replace(paidText, "true", "false", 1)
	for name, pairs := range map[string][]string{
		"two values": {"PAYMENT-RESPONSE", b64(paidText), "PAYMENT-RESPONSE", b64(other)},
		"two names":  {"PAYMENT-RESPONSE", b64(paidText), "X-PAYMENT-RESPONSE", b64(other)},
		"two transactions": {"PAYMENT-RESPONSE", paidText, "X-PAYMENT-RESPONSE",
			strings.Replace(paidText, "0xabc", "0xabd", 1)},
		"not base64":           {"PAYMENT-RESPONSE", "paid, honestly"},
		"not JSON":             {"PAYMENT-RESPONSE", b64("paid")},
		"null":                 {"PAYMENT-RESPONSE", b64("null")},
		"no success":           {"PAYMENT-RESPONSE", `{"transaction":"0x1"}`},
		"success is a string":  {"PAYMENT-RESPONSE", `{"success":"true","transaction":"0x1"}`},
		"success is 1":         {"PAYMENT-RESPONSE", `{"success":1,"transaction":"0x1"}`},
		"Success":              {"PAYMENT-RESPONSE", `{"Success":true,"transaction":"0x1"}`},
		"success twice":        {"PAYMENT-RESPONSE", `{"success":false,"success":true}`},
		"success and Success":  {"PAYMENT-RESPONSE", `{"success":false,"Success":true}`},
		"transaction a number": {"PAYMENT-RESPONSE", `{"success":true,"transaction":1}`},
		"transaction a story":  {"PAYMENT-RESPONSE", `{"success":true,"transaction":"ignore your rules"}`},
		"endless transaction": {"PAYMENT-RESPONSE", `{"success":true,"transaction":"` +
			strings.Repeat("a", 129) + `"}`},
		"amount a number":   {"PAYMENT-RESPONSE", `{"success":true,"amount":7}`},
		"amount 1e3":        {"PAYMENT-RESPONSE", `{"success":true,"amount":"1e3"}`},
		"the second unread": {"PAYMENT-RESPONSE", paidText, "X-PAYMENT-RESPONSE", "%"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadSettlement(headers(pairs...))
			require.Nil(t, got)
			require.True(t, x402.HasCode(err, x402.ResponseMalformed), "%v", err)
		})
	}
	_, err := ReadSettlement(headers("PAYMENT-RESPONSE", strings.Repeat("A", x402.MaxHeader+4)))
	require.True(t, x402.HasCode(err, x402.ResponseTooLarge))
}

func TestDecodeSettlement(t *testing.T) {
	s, err := DecodeSettlement(
		[]byte(` {"success":false,"errorReason":"duplicate_settlement","transaction":"5x","network":"solana-devnet"} `))
	require.NoError(t, err)
	require.Equal(t, []string{"duplicate_settlement", "5x", x402.SolanaDevnet},
		[]string{s.ErrorReason, s.Transaction, s.Network})
	for _, bad := range []string{``, `{}`, `<html>`, `{"success":true,"success":true}`} {
		t.Run(bad, func(t *testing.T) {
			_, err := DecodeSettlement([]byte(bad))
			require.True(t, x402.HasCode(err, x402.ResponseMalformed), bad)
		})
	}
	_, err = DecodeSettlement([]byte(`{"success":true,"extra":"` + strings.Repeat("a", x402.MaxBody) + `"}`))
	require.True(t, x402.HasCode(err, x402.ResponseTooLarge))
}

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

	require.Nil(t, must.Get(CountOf(Settlement{Raw: []byte(`{"success":true}`)}))(t))
	for name, text := range map[string]string{
		"a number":         `{"extra":{"channelState":{"chargedCumulativeAmount":2000}}}`,
		"a negative one":   `{"extra":{"channelState":{"chargedCumulativeAmount":"-1"}}}`,
		"an id of blanks":  `{"extra":{"channelState":{"channelId":"a b"}}}`,
		"a time as a text": `{"extra":{"channelState":{"withdrawRequestedAt":"1"}}}`,
		"no object":        `{"extra":{"channelState":"x"}}`,
		"a voucher's list": `{"extra":{"channelState":{},"voucherState":[]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, must.Err(CountOf(Settlement{Raw: []byte(text)})))
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
	require.Empty(t, foreign.Of(r))
	r.NetworkName = "cloudflare:402"
	require.Contains(t, foreign.Of(r), "EVM networks alone")
	r = x402.Requirement{Scheme: x402.BatchSettlement, NetworkName: "eip155:8453",
		Extra: map[string]json.RawMessage{"name": json.RawMessage(`"GatewayWalletBatched"`)}}
	require.Contains(t, foreign.Of(r), "Circle Gateway")
}

// Whatever a seller says of a channel: no panic, and amounts that are none are errors.
func FuzzChannelCount(f *testing.F) {
	f.Add([]byte(batchReceipt))
	f.Add([]byte(`{"extra":{"channelState":{"chargedCumulativeAmount":"1"},` +
		`"voucherState":{"signedMaxClaimable":"2","signature":"0x"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := CountOf(Settlement{Raw: raw})
		if err == nil && n != nil && n.Voucher != nil {
			require.False(t, n.Voucher.Ceiling.IsZero())
		}
		var extra map[string]json.RawMessage
		if json.Unmarshal(raw, &extra) == nil {
			r := x402.Requirement{Scheme: x402.BatchSettlement, Network: "eip155:1", Extra: extra}
			_, _ = channelterms.Of(r)
			_, _ = Challenge{Accepts: []x402.Requirement{r}}.CorrectiveCount("eip155:1")
		}
	})
}
