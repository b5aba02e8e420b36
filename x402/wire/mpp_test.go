package wire

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// mppVector is what mppx 0.11 and @solana/mpp 0.6 sent and took.
type mppVector struct {
	ChallengeHeaders      map[string]string
	Challenges            []map[string]any
	Header, Authorization string
	Credential            struct {
		Challenge, Payload json.RawMessage
		Source             string
	}
	Paid *struct {
		Headers, Receipt map[string]string
	}
}

func mppVectors(t *testing.T) map[string]mppVector {
	t.Helper()
	data := must.Get(os.ReadFile("../testdata/mpp-vectors.json"))(t)
	all := must.JSON[struct{ Vectors map[string]mppVector }](data)(t)
	return all.Vectors
}

func authenticate(text string) http.Header {
	latin1 := make([]byte, 0, len(text))
	for _, c := range text {
		latin1 = append(latin1, byte(c))
	}
	return asked(string(latin1))
}

func asked(value string) http.Header {
	header := http.Header{}
	header.Set(headerAuthenticate, value)
	return header
}

func TestMPPChallengesAsMppxWritesThem(t *testing.T) {
	for _, name := range []string{"mpp_evm_charge", "mpp_evm_charge_opaque", "mpp_solana_charge"} {
		v := mppVectors(t)[name]
		c, err := ReadChallenge(402, authenticate(v.ChallengeHeaders["www-authenticate"]), nil)
		require.NoError(t, err, name)
		require.Equal(t, dialectMPP, c.Dialect)
		require.Len(t, c.Accepts, 1)
		r, said := c.Accepts[0], v.Challenges[0]
		request := said["request"].(map[string]any)
		require.Equal(t, x402.MPP, r.Scheme)
		require.Equal(t, said["id"], r.Charge.ID)
		require.Equal(t, said["realm"], r.Charge.Realm)
		require.Equal(t, said["expires"], r.Charge.Expires.Format("2006-01-02T15:04:05.000Z"))
		require.Equal(t, request["amount"], r.Amount.String())
		require.Equal(t, request["currency"], r.Asset)
		require.Equal(t, request["recipient"], r.PayTo)
		require.Equal(t, chargeTimeout, r.MaxTimeout)
		require.JSONEq(t, string(v.Credential.Challenge), string(r.Raw), "what is echoed")
		if name == "mpp_solana_charge" {
			require.Equal(t, x402.SolanaDevnet, r.Network)
			require.Equal(t, request["externalId"], r.ExtraString("memo"))
			details := request["methodDetails"].(map[string]any)
			require.Equal(t, details["feePayerKey"], r.ExtraString("feePayer"))
			require.Equal(t, details["recentBlockhash"], r.ExtraString("recentBlockhash"))
		} else {
			require.Equal(t, "eip155:84532", r.Network)
		}
	}
}

func TestMPPCredentialsEqualMppx(t *testing.T) {
	for _, name := range []string{"mpp_evm_charge", "mpp_evm_charge_opaque", "mpp_solana_charge"} {
		v := mppVectors(t)[name]
		c := must.Get(ReadChallenge(402, authenticate(v.ChallengeHeaders["www-authenticate"]), nil))(t)
		r := c.Accepts[0]

		var payload x402.Object // as the chain's package signs it
		require.NoError(t, json.Unmarshal(v.Credential.Payload, &payload))
		delete(payload, "type")
		if signature := payload["signature"]; signature != nil {
			delete(payload, "signature")
			payload = x402.Object{"authorization": sorted(payload).object(), "signature": signature}
		}
		encoded := must.Get(EncodePayload(c, r, sorted(payload).object(), nil))(t)
		with := Attach(r.Dialect, encoded)
		require.Equal(t, "Authorization", with.Header)
		if v.Credential.Source == "" { // @solana/mpp does not say who pays, and has it from the transaction
			require.NotContains(t, string(encoded), "source")
		}
		require.Equal(t, v.Authorization, with.Value, name)
	}
}

func TestMPPReceipts(t *testing.T) {
	v := mppVectors(t)["mpp_evm_charge"]
	s := must.Get(ReadSettlement(http.Header{"Payment-Receipt": {v.Paid.Headers["payment-receipt"]}}))(t)
	require.True(t, s.Success)
	require.Equal(t, v.Paid.Receipt["reference"], s.Transaction)

	receipt := must.Get(json.Marshal(v.Paid.Receipt))(t)
	s = must.Get(ReadMCPSettlement(MCPMessage{Result: json.RawMessage(
		`{"content":[],"_meta":{"org.paymentauth/receipt":` + string(receipt) + `}}`)}))(t)
	require.Equal(t, v.Paid.Receipt["reference"], s.Transaction)

	for text, success := range map[string]bool{`{"status":"failed"}`: false, `{"status":"success"}`: true} {
		require.Equal(t, success, must.Get(chargeReceipt([]byte(text)))(t).Success)
	}
	for _, text := range []string{`{}`, `{"status":true}`, `{"status":"success","reference":7}`, `x`,
		`{"status":"success","status":"failed"}`} {
		require.Error(t, must.Err(chargeReceipt([]byte(text))), text)
	}
}

// A 402 of mppx offers x402 too: the options of both are there, and no more is made of it.
func TestMPPBesideX402(t *testing.T) {
	v := mppVectors(t)["mpp_evm_charge"]
	header := authenticate(v.ChallengeHeaders["www-authenticate"])
	header.Set(HeaderRequired, v.ChallengeHeaders["payment-required"])
	c := must.Get(ReadChallenge(402, header, nil))(t)
	require.Len(t, c.Accepts, 2)
	require.Equal(t, x402.Exact, c.Accepts[0].Scheme)
	require.Nil(t, c.Accepts[0].Charge)
	require.Equal(t, x402.MPP, c.Accepts[1].Scheme)
	require.Equal(t, 1, c.Accepts[1].Index)
	require.Equal(t, dialectMPP, c.Accepts[1].Dialect)
}

func TestMPPOverMCP(t *testing.T) {
	v := mppVectors(t)["mpp_evm_charge"]
	challenges := must.Get(json.Marshal(v.Challenges))(t)
	for _, code := range []int64{codeMPPRequired, codeMPPRefused} {
		c := must.Get(ReadMCPChallenge(MCPMessage{Code: code,
			Data: json.RawMessage(`{"httpStatus":402,"challenges":` + string(challenges) + `}`)}))(t)
		require.Equal(t, dialectMCPMPP, c.Dialect)
		r := c.Accepts[0]
		require.True(t, r.Dialect.MCP())
		require.Empty(t, r.Charge.Header)
		encoded := must.Get(EncodePayload(c, r, json.RawMessage(`{"transaction":"AA=="}`), nil))(t)
		with := Attach(r.Dialect, encoded)
		require.Empty(t, with.Header)
		var credential struct{ Challenge map[string]any }
		require.NoError(t, json.Unmarshal(with.Meta["org.paymentauth/credential"], &credential))
		require.Equal(t, v.Challenges[0], credential.Challenge, "the request goes back as the object it was")
	}
	for code, data := range map[int64]string{codeMPPRequired: `{"elicitations":[]}`, -32000: `{"challenges":[{}]}`,
		codeMPPRefused: `{"challenges":{}}`} {
		require.Nil(t, must.Get(ReadMCPChallenge(MCPMessage{Code: code, Data: json.RawMessage(data)}))(t))
	}
}

func requestOf(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

const evmCharge = `{"amount":"10000","currency":"0x036CbD53842c5426634e7929541eC2318f3dCF7e",` +
	`"recipient":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","methodDetails":{"chainId":84532}}`

func TestMPPChallengesThatAreNotPaid(t *testing.T) {
	of := func(method, request string) string {
		return `Payment id="a", realm="a.example", method="` + method + `", intent="charge", request="` +
			requestOf(request) + `"`
	}
	for _, c := range []struct{ header, why string }{
		{of("tempo", evmCharge), "MPP tempo/charge: the chainId is \"84532\""},
		{strings.Replace(of("tempo", evmCharge), `intent="charge"`, `intent="session"`, 1),
			"MPP tempo/session: it is paid by vouchers from a channel with a deposit"},
		{of("stripe", evmCharge), "MPP stripe/charge: it is paid by a token of Stripe's"},
		{of("lightning", evmCharge), "MPP lightning/charge: it is paid over Lightning"},
		{of("card", evmCharge), "MPP card/charge"},
		{of("hedera", evmCharge), "this wallet pays evm/charge, solana/charge and tempo/charge"},
		{strings.Replace(of("evm", evmCharge), `intent="charge"`, `intent="session"`, 1), "a channel with a deposit"},
		{of("EVM", evmCharge), "this wallet pays evm/charge"},
		{of("evm", strings.Replace(evmCharge, `"chainId":84532`,
			`"chainId":84532,"credentialTypes":["permit2"]`, 1)), "EIP-3009"},
		{of("evm", strings.Replace(evmCharge, `"chainId":84532`,
			`"chainId":84532,"splits":[{"amount":"1"}]`, 1)), "split among several payees"},
		{of("evm", strings.Replace(evmCharge, `"chainId":84532`, ``, 1)), "network"},
		{of("evm", strings.Replace(evmCharge, `"10000"`, `"0"`, 1)), "amount"},
		{of("evm", strings.Replace(evmCharge, `"10000"`, `10000`, 1)), "cannot be read"},
		{of("evm", strings.Replace(evmCharge, `{"amount"`, `{"amount":"1","amount"`, 1)), "cannot be read"},
		{of("evm", `[]`), "cannot be read"},
		{of("solana", strings.Replace(evmCharge, `"chainId":84532`, `"feePayer":false`, 1)), "holds no SOL"},
		{of("solana", strings.Replace(evmCharge, `"chainId":84532`, `"network":"moon"`, 1)), "not known"},
		{strings.Replace(of("evm", evmCharge), `id="a", `, ``, 1), "no id"},
		{of("evm", evmCharge) + `, id="b"`, "comes twice"},
		{of("evm", evmCharge) + `, expires="soon"`, "expires"},
		{of("evm", evmCharge) + `, header="Cookie"`, "not for one"},
		{of("evm", evmCharge) + `, header="X-A: b"`, "not for one"},
		{of("evm", evmCharge) + `, description="no end`, "does not end"},
		{strings.Replace(of("evm", evmCharge), `request="`, `request="%`, 1), "base64url"},
	} {
		answer, err := ReadChallenge(402, asked(c.header), nil)
		require.NoError(t, err, c.header)
		require.Empty(t, answer.Accepts, c.header)
		require.Len(t, answer.Unreadable, 1, c.header)
		require.ErrorContains(t, answer.Unreadable[0].Why, c.why, c.header)
	}
}

const tempoCharge = `{"amount":"10000","currency":"0x20C000000000000000000000b9537d11c60E8b50",` +
	`"recipient":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","methodDetails":{"chainId":4217}}`

func readTempoCharge(t *testing.T, request string) (x402.Requirement, error) {
	header := `Payment id="a", realm="a.example", method="tempo", intent="charge", request="` +
		requestOf(request) + `", expires="2026-12-01T12:00:00Z"`
	c := must.Get(ReadChallenge(402, asked(header), nil))(t)
	if len(c.Unreadable) > 0 {
		return x402.Requirement{}, c.Unreadable[0].Why
	}
	return c.Accepts[0], nil
}

func TestTempoChallenge(t *testing.T) {
	r := must.Get(readTempoCharge(t, tempoCharge))(t)
	require.Equal(t, "tempo", r.Way())
	require.Equal(t, "eip155:4217", r.Network)
	require.Equal(t, "10000", r.Amount.String())
	require.False(t, r.Charge.SellerPaysFee)
	memo := "0x" + strings.Repeat("aB", 32)
	for details, want := range map[string]x402.Charge{
		``:                                 {Pull: true, Push: true},
		`,"supportedModes":null`:           {Pull: true, Push: true},
		`,"supportedModes":["pull"]`:       {Pull: true},
		`,"supportedModes":["push","new"]`: {Push: true},
		`,"feePayer":true`:                 {Pull: true, Push: true, SellerPaysFee: true},
		`,"memo":"` + memo + `"`:           {Pull: true, Push: true, Memo: strings.ToLower(memo)},
		`,"splits":[],"machineTokenEnabled":false`: {Pull: true, Push: true},
	} {
		c := must.Get(readTempoCharge(t, strings.Replace(tempoCharge, `4217`, `42431`+details, 1)))(t).Charge
		got := x402.Charge{Pull: c.Pull, Push: c.Push, SellerPaysFee: c.SellerPaysFee, Memo: c.Memo}
		require.Equal(t, want, got, details)
	}
}

func TestTempoChallengesThatAreNotPaid(t *testing.T) {
	for _, c := range []struct{ from, to, says string }{
		{`"chainId":4217`, ``, "no chainId"}, {`4217`, `null`, "no chainId"}, {`4217`, `0`, "must be 4217"},
		{`4217`, `8453`, "must be 4217"}, {`4217`, `"4217"`, "must be 4217"},
		{`4217`, `4217.0`, "must be 4217"}, {`4217`, `-1`, "must be 4217"}, {`4217`, `{}`, "must be 4217"},
		{`"chainId":4217`, `"chainId":4217,"chainId":42431`, "cannot be read"},
		{`"amount":"10000"`, `"amount":"0.01"`, "amount"}, {`"amount":"10000"`, `"amount":10000`, "read"},
		{`"amount":"10000"`, `"amount":"-1"`, "amount"}, {`"amount":"10000",`, ``, "amount"},
		{`"amount":"10000"`, `"amount":"0"`, "amount is 0"}, {`"amount":"10000"`, `"amount":"0x10"`, "amount"},
		{`"amount":"10000"`, `"amount":"` + strings.Repeat("9", 79) + `"`, "amount"},
		{`"chainId"`, `"memo":"0x01","chainId"`, "the memo"},
		{`"chainId"`, `"memo":"0x` + strings.Repeat("0", 66) + `","chainId"`, "the memo"},
		{`"chainId"`, `"memo":"hello","chainId"`, "the memo"},
		{`"chainId"`, `"supportedModes":[],"chainId"`, "neither pull"},
		{`"chainId"`, `"supportedModes":["post"],"chainId"`, "neither pull"},
		{`"chainId"`, `"feePayer":"yes","chainId"`, "cannot be read"},
		{`"chainId"`, `"splits":[{"amount":"1"}],"chainId"`, "split among several"},
	} {
		text := strings.Replace(tempoCharge, c.from, c.to, 1)
		require.NotEqual(t, tempoCharge, text, c)
		_, err := readTempoCharge(t, text)
		require.ErrorContains(t, err, c.says, text)
	}
	header := `Payment id="a", realm="a.example", method="tempo", intent="charge", request="` +
		requestOf(tempoCharge) + `"`
	answer := must.Get(ReadChallenge(402, asked(header), nil))(t)
	require.ErrorContains(t, answer.Unreadable[0].Why, "when it expires")
}

// The credential has the challenge as it came, and what the specification names; a transaction becomes its
// hash where the seller wants that.
func TestTempoCredential(t *testing.T) {
	r := must.Get(readTempoCharge(t, tempoCharge))(t)
	sent := must.Get(EncodePayload(nil, r, json.RawMessage(`{"from":"0xAb","transaction":"0x76f0"}`), nil))(t)
	require.JSONEq(t, `{"challenge":`+string(r.Raw)+`,"payload":{"type":"transaction","signature":"0x76f0"},`+
		`"source":"did:pkh:eip155:4217:0xAb"}`, string(sent))
	require.Equal(t, "0x76f0", must.Get(TempoTransaction(sent))(t))
	payload, accepted, err := DecodeAnswer(sent)
	require.NoError(t, err)
	require.JSONEq(t, `{"signature":"0x76f0"}`, string(payload))
	require.JSONEq(t, string(r.Raw), string(accepted))
	pushed := must.Get(WithHash(sent, "0x01"))(t)
	require.JSONEq(t, `{"challenge":`+string(r.Raw)+`,"payload":{"type":"hash","hash":"0x01"},`+
		`"source":"did:pkh:eip155:4217:0xAb"}`, string(pushed))
	require.Error(t, must.Err(TempoTransaction(pushed)))
}

func TestMPPHeaderThatTheChallengeNames(t *testing.T) {
	header := `Payment id="a", realm="a.example", method="evm", intent="charge", request="` +
		requestOf(evmCharge) + `", header="Payment-Authorization"`
	c := must.Get(ReadChallenge(402, asked(header), nil))(t)
	encoded := must.Get(EncodePayload(c, c.Accepts[0], json.RawMessage(
		`{"authorization":{"from":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"},"signature":"0x"}`), nil))(t)
	with := Attach(c.Accepts[0].Dialect, encoded)
	require.Equal(t, "Payment-Authorization", with.Header)
	require.True(t, strings.HasPrefix(with.Value, "Payment "))
	require.Equal(t, time.Time{}, c.Accepts[0].Charge.Expires)
}

func TestAuthChallenges(t *testing.T) {
	two := authChallenges([]string{mppVectors(t)["mpp_two_challenges_one_header"].Header})
	require.Len(t, two, 3)
	require.Equal(t, "x", two[0].parameters["realm"])
	require.Equal(t, "evm", two[1].parameters["method"])
	require.Equal(t, "tempo", two[2].parameters["method"])
	require.Equal(t, `say "hi", Payment now`, two[2].parameters["description"])

	for text, schemes := range map[string]string{
		`Basic`: "Basic", `Negotiate abc==, Basic realm=x`: "Negotiate Basic", `Bearer abc/d`: "Bearer",
		`,, Digest a = "b" ,c=d,Payment id="\u2013\"\\u"`: "Digest Payment", ``: "", `"x"`: "",
		`Payment id="a" junk, Basic`: "Payment junk Basic",
	} {
		var found []string
		for _, c := range authChallenges([]string{text}) {
			found = append(found, c.scheme)
		}
		require.Equal(t, schemes, strings.Join(found, " "), text)
	}
	quoted := authChallenges([]string{`Payment a="\u2013\"\\u00", b="\uZZZZ"`})[0].parameters
	require.Equal(t, `–"\u00`, quoted["a"])
	require.Len(t, authChallenges([]string{strings.Repeat("A a=b,", 20)}), maxAuthChallenges)
}

func TestLightningPrice(t *testing.T) {
	for invoice, words := range map[string]string{"lnbc10u1p0": ", 1000 sats", "lnbc1m1p": ", 100000 sats",
		"LNBC25N1P": ", 2.5 sats", "lntb20p1x": ", 0.002 sats", "lnbc1p0xyz": "", "": "",
		"lnbc99999999999999u1": ""} {
		require.Equal(t, words, lightningPrice(invoice), invoice)
	}
}

func FuzzAuthChallenges(f *testing.F) {
	f.Add(`Basic realm="x", Payment id="a", request="eyJ9", description="\u2013"`)
	f.Add(`Negotiate abc==, Payment id=`)
	f.Add("Payment id=\"caf\xe9")
	f.Fuzz(func(t *testing.T, text string) {
		header := asked(text)
		list := headerCharges(header)
		for _, r := range list.readable {
			if r.Amount.IsZero() || r.Charge.ID == "" || !json.Valid(r.Raw) {
				t.Fatalf("half a charge: %+v", r)
			}
			encoded, err := EncodePayload(&Challenge{}, r, json.RawMessage(`{"transaction":"AA=="}`), nil)
			if err != nil || !json.Valid(encoded) {
				t.Fatalf("no credential: %v", err)
			}
		}
		_, _ = ReadChallenge(402, header, nil)
	})
}
