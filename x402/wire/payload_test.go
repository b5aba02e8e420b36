package wire

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// What we send for the reference client's signed payloads is what it sent, and the seller's option
// is in it to the byte.
func TestVectorsAreEncodedAsTheReferenceDoes(t *testing.T) {
	for name, v := range readVectors(t) {
		t.Run(name, func(t *testing.T) {
			c := v.challenge(t)
			var sent struct {
				Payload    json.RawMessage
				Extensions map[string]json.RawMessage
			}
			require.NoError(t, json.Unmarshal(v.Payload, &sent))
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
		devnetUSDC +
		`","payTo":"` + payeeSVM + `","maxTimeoutSeconds":60`
	ask := func(h http.Header) *Challenge {
		return must.Get(ReadChallenge(402, h, nil))(t)
	}
	xProof := func(entry string) *Challenge { return ask(headers("X-Payment-Required", b64(v2(entry)))) }
	for name, c := range map[string]struct {
		challenge *Challenge
		feePayer  string
		want      string
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
		c, err := ReadChallenge(402, nil, []byte(`{"x402Version":2,"extensions":`+extensions+`,"accepts":[`+
			entryV2("", "")+`]}`))
		require.NoError(t, err)
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
