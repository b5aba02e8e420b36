package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

const (
	baseUSDC   = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
	devnetUSDC = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
	payeeEVM   = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	payeeSVM   = "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4"
)

// entryV2 and entryV1 are options to alter: one member is written over, or left out where the text is "".
func entryV2(key, text string) string {
	return entry(map[string]string{"scheme": `"exact"`, "network": `"eip155:8453"`, "amount": `"10000"`,
		"asset": `"` + baseUSDC + `"`,
		"payTo": `"` + payeeEVM + `"`, "maxTimeoutSeconds": `60`,
		"extra": `{"name":"USD Coin","version":"2"}`}, key, text)
}

func entryV1(key, text string) string {
	return entry(map[string]string{"scheme": `"exact"`, "network": `"base"`, "maxAmountRequired": `"10000"`,
		"asset": `"` + baseUSDC + `"`,
		"payTo": `"` + payeeEVM + `"`, "maxTimeoutSeconds": `60`, "resource": `"https://api.example.com/x"`,
		"description": `"d"`,
		"mimeType":    `"application/json"`, "outputSchema": `null`}, key, text)
}

func entry(members map[string]string, key, text string) string {
	members[key] = text
	if text == "" {
		delete(members, key)
	}
	object := map[string]json.RawMessage{}
	for k, v := range members {
		object[k] = json.RawMessage(v)
	}
	return string(sorted(object).object())
}

func v2(entries ...string) string {
	return `{"x402Version":2,"resource":{"url":"https://api.example.com/x"},"accepts":[` +
		strings.Join(entries, ",") + `]}`
}

// xProof is the challenge in X-Payment-Required: without a resource, and without extra where they write
// none.
func xProof(entries ...string) string {
	return `{"x402Version":2,"accepts":[` + strings.Join(entries, ",") + `]}`
}

func v1(entries ...string) string {
	return `{"x402Version":1,"error":"X-PAYMENT header is required","accepts":[` +
		strings.Join(entries, ",") + `]}`
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// pad adds white space until base64 ends in two equal signs.
func pad(text string) string {
	for !strings.HasSuffix(b64(text), "==") {
		text += " "
	}
	return text
}

func plainProof(amount string) http.Header {
	return headers("X-Payment-Amount", amount, "X-Payment-Recipient", payeeSVM, "X-Payment-Token", devnetUSDC,
		"X-Payment-Network", x402.SolanaDevnet)
}

// One row per dialect of dialect.go, and what the order decides where there are two.
func TestReadChallengeFindsTheDialect(t *testing.T) {
	plain := entryV2("", "")
	both := func(h http.Header, pairs ...string) http.Header { maps.Copy(h, headers(pairs...)); return h }
	for name, c := range map[string]struct {
		status  int
		header  http.Header
		body    string
		dialect x402.Dialect
		version int
		amount  uint64
	}{
		"V2 header": {402, headers("PAYMENT-REQUIRED", b64(v2(plain))), `{}`,
			x402.DialectV2Header, 2, 10000},
		"V2 header, 412": {412, headers("PAYMENT-REQUIRED", b64(v2(plain))), ``,
			x402.DialectV2Header, 2, 10000},
		"V2 header with a sample body": {402, headers("PAYMENT-REQUIRED", b64(v2(plain))),
			`{"id":1,"ID":2}`, x402.DialectV2Header, 2, 10000},
		"V2 header with an HTML paywall": {402, headers("PAYMENT-REQUIRED", b64(v2(plain))),
			`<!doctype html>`, x402.DialectV2Header, 2, 10000},
		"V2 header with an endless body": {402, headers("PAYMENT-REQUIRED", b64(v2(plain))), "[" +
			strings.Repeat(" ", x402.MaxBody), x402.DialectV2Header, 2, 10000},
		"V2 header, raw JSON": {402, headers("PAYMENT-REQUIRED", v2(plain)), ``, x402.DialectV2Header,
			2, 10000},
		"V2 header, twice the same": {402, headers("PAYMENT-REQUIRED", b64(v2(plain)),
			"PAYMENT-REQUIRED", b64(v2(plain))), ``, x402.DialectV2Header, 2, 10000},
		"V1 in the V2 header": {402, headers("PAYMENT-REQUIRED", b64(v1(entryV1("", "")))), ``,
			x402.DialectV1Body, 1, 10000},
		"X-Payment-Required V2": {402, headers("X-Payment-Required", b64(xProof(entryV2("extra", "")))), ``,
			x402.DialectXProof, 2, 10000},
		"complete V2 in X-Payment-Required": {402, headers("X-Payment-Required", b64(v2(plain))), ``,
			x402.DialectXV2, 2, 10000},
		"with a resource alone": {402, headers("X-Payment-Required", b64(v2(entryV2("extra", "")))), ``,
			x402.DialectXV2, 2, 10000},
		"with extra alone": {402, headers("X-Payment-Required", b64(xProof(plain))), ``,
			x402.DialectXV2, 2, 10000},
		"V1 in X-Payment-Required": {402, headers("X-Payment-Required", b64(v1(entryV1("", "")))), ``,
			x402.DialectXV1, 1, 10000},
		"one option in X-Payment-Required": {402, headers("X-Payment-Required", entryV2("extra", "")), ``,
			x402.DialectXV2, 2, 10000},
		"one option of V1 in X-Payment-Required": {402, headers("X-Payment-Required", entryV1("", "")), ``,
			x402.DialectXV1, 1, 10000},
		"one option in the V2 header": {402, headers("PAYMENT-REQUIRED", entryV1("", "")), ``,
			x402.DialectV1Body, 1, 10000},
		"V2 that kept V1's name for the amount": {402, nil, v2(strings.Replace(entryV2("", ""), `"amount"`,
			`"maxAmountRequired"`, 1)), x402.DialectV2Body, 2, 10000},
		"both names, the same amount": {402, nil, v2(entryV2("maxAmountRequired", `"10000"`)),
			x402.DialectV2Body, 2, 10000},
		"body beside X-PAYMENT-REQUIRED: true": {402, headers("X-PAYMENT-REQUIRED", "true"),
			v1(entryV1("", "")), x402.DialectV1Body, 1, 10000},
		"body beside a broken V2 header": {402, headers("PAYMENT-REQUIRED", "%%%"), v1(entryV1("", "")),
			x402.DialectV1Body, 1, 10000},
		"body beside an ambiguous V2 header": {402, headers("PAYMENT-REQUIRED", `{"a":1,"a":2}`),
			v1(entryV1("", "")), x402.DialectV1Body, 1, 10000},
		"body beside a header with a foreign option": {402, headers("PAYMENT-REQUIRED",
			`{"x402Version":2,"accepts":[{"scheme":"nvm:erc4337","network":"eip155:8453"}]}`),
			v1(entryV1("", "")), x402.DialectV1Body, 1, 10000},
		"body beside plain headers in dollars": {402, headers("X-Payment-Required", "true",
			"X-Payment-Amount", "0.01"), v1(entryV1("", "")), x402.DialectV1Body, 1, 10000},
		"V1 body":           {402, nil, v1(entryV1("", "")), x402.DialectV1Body, 1, 10000},
		"V1 body, indented": {402, nil, "\n  " + v1(entryV1("", "")) + "\n", x402.DialectV1Body, 1, 10000},
		"V2 body":           {402, nil, v2(plain), x402.DialectV2Body, 2, 10000},
		"X-Payment-Amount": {402, plainProof("500000"), `{"error":"pay"}`, x402.DialectPlainProof, 2,
			500000},
		"X-Payment-Amount, no body": {402, plainProof("500000"), ``, x402.DialectPlainProof, 2, 500000},
		"X-Payment-Amount, body is text": {402, plainProof("500000"), `Payment Required`,
			x402.DialectPlainProof, 2, 500000},
		"header before body, same price": {402, headers("PAYMENT-REQUIRED", b64(v2(plain))),
			v1(entryV1("", "")), x402.DialectV2Header, 2, 10000},
		"header before X-Payment-Required": {402, headers("PAYMENT-REQUIRED", b64(v2(plain)),
			"X-PAYMENT-REQUIRED", b64(v2(plain))), ``, x402.DialectV2Header, 2, 10000},
		"body before plain headers": {402, plainProof("1"), v1(entryV1("", "")), x402.DialectV1Body, 1,
			10000},
		"X-Payment-Required before plain headers": {402, both(plainProof("1"), "X-PAYMENT-REQUIRED",
			b64(xProof(entryV2("extra", "")))), ``, x402.DialectXProof, 2, 10000},
		"the second one is unreadable": {402, headers("PAYMENT-REQUIRED", b64(v2(plain))),
			`{"x402Version":1,"accepts":[]}`, x402.DialectV2Header, 2, 10000},
		"the second one is for elsewhere": {402, headers("PAYMENT-REQUIRED", b64(v2(plain))),
			v1(entryV1("network", `"base-sepolia"`)), x402.DialectV2Header, 2, 10000},
		"an empty header is none": {402, headers("PAYMENT-REQUIRED", " "), v1(entryV1("", "")),
			x402.DialectV1Body, 1, 10000},
		"X-Payment-Amount, other names": {402, headers("X-Payment-Amount", "7", "X-Payment-PayTo", payeeSVM,
			"X-Payment-Asset", devnetUSDC,
			"X-Payment-Network", "solana-devnet"), ``, x402.DialectPlainProof, 2, 7},
	} {
		t.Run(name, func(t *testing.T) {
			got := must.Get(ReadChallenge(c.status, c.header, []byte(c.body)))(t)
			require.Equal(t, c.dialect, got.Dialect)
			require.Equal(t, c.version, got.Version)
			require.Len(t, got.Accepts, 1)
			r := got.Accepts[0]
			require.Equal(t, []any{c.dialect, c.version, 0, "exact", money.NewAmount(c.amount)},
				[]any{r.Dialect, r.Version, r.Index, r.Scheme, r.Amount})
			require.Equal(t, c.dialect == x402.DialectPlainProof, r.Raw == nil,
				"only plain headers have no bytes to echo")
		})
	}
}

func TestReadChallengeReadsEveryMember(t *testing.T) {
	text := `{"x402Version":2,"error":"pay <b>","extensions":{"bazaar":{"info":{"a":1}}},"resource":{"url":"https://a.example/x","description":"d",
		"mimeType":"","tags":null},"accepts":[{"scheme":"upto","network":"solana-devnet","amount":"18446744073709551615","asset":"` + devnetUSDC + `",
		"payTo":"` + payeeSVM +
		`","maxTimeoutSeconds":300,"extra":{"feePayer":"F","lastValidBlockHeight":9007199254740993, "paymentFlow":"escrow"}}]}`
	c := must.Get(ReadChallenge(402, headers("payment-required", b64(text)), nil))(t)
	require.Equal(t, "pay <b>", c.Error)
	require.Equal(t, []string{"https://a.example/x", "d", ""},
		[]string{c.Resource.URL, c.Resource.Description, c.Resource.MimeType})
	require.JSONEq(t, `{"info":{"a":1}}`, string(c.Extensions["bazaar"]))
	r := c.Accepts[0]
	require.Equal(t, x402.SolanaDevnet, r.Network)
	require.Equal(t, "solana-devnet", r.NetworkName)
	require.Equal(t, 300*time.Second, r.MaxTimeout)
	require.Equal(t, "9007199254740993", string(r.Extra["lastValidBlockHeight"]),
		"extra is kept to the digit")
	require.Equal(t, []string{"F", "escrow"}, []string{r.ExtraString("feePayer"),
		r.ExtraString("paymentFlow")})
	require.Contains(t, text, string(r.Raw), "the option is the seller's bytes, white space included")

	c = must.Get(ReadChallenge(402, nil, []byte(v1(entryV1("", "")))))(t)
	require.Equal(t, Resource{URL: "https://api.example.com/x", Description: "d",
		MimeType: "application/json"}, c.Resource)
	require.Equal(t, "https://api.example.com/x", c.Accepts[0].ResourceURL)
	require.Equal(t, []string{"base", "eip155:8453"}, []string{c.Accepts[0].NetworkName,
		c.Accepts[0].Network})
}

// Null is absent, resource may be missing; V2 in X-Payment-Required has neither extra nor a timeout.
func TestOptionalMembersMayBeNullOrMissing(t *testing.T) {
	for _, text := range []string{
		v2(entryV2("maxTimeoutSeconds", "")), v2(entryV2("maxTimeoutSeconds", "null")),
		v2(entryV2("extra", "null")), v2(entryV2("extra", "")),
		`{"x402Version":2,"error":null,"resource":null,"extensions":null,"accepts":[` + entryV2("", "") +
			`]}`,
		`{"x402Version":2,"accepts":[` + entryV2("", "") + `]}`,
		`{"x402Version":2,"error":{"code":1},"accepts":[` + entryV2("", "") + `]}`,
		`{"x402Version":2,"resource":"https://a.example","accepts":[` + entryV2("", "") + `]}`,
	} {
		t.Run(text, func(t *testing.T) {
			c, err := ReadChallenge(402, headers("X-Payment-Required", b64(text)), nil)
			require.NoError(t, err, text)
			require.Equal(t, time.Minute, c.Accepts[0].MaxTimeout)
		})
	}
}

// What breaks the format in one option: it is set aside with its reason
// (INVALID_REQUIREMENT, when nothing else can be paid), and spoils no other.
func TestAnOptionThatBreaksTheFormat(t *testing.T) {
	type row struct{ name, key, text, why string }
	rows := []row{{"A2", "amount", `"0"`, "amount is 0: it must be at least 1"},
		{"A7", "amount", `10000`, "not a JSON string"}, {"A7", "amount", `1e4`, "not a JSON string"},
		{"A7", "amount", `9007199254740993`, "not a JSON string"},
		{"A8", "amount", `"18446744073709551616"`, "18446744073709551615"},
		{"no amount", "amount", ``, "amount is missing"}, {"null amount", "amount", `null`,
			"amount is missing"},
		{"empty", "amount", `""`, "decimal"}, {"list", "amount", `["1"]`, "not a JSON string"},
		{"B6", "maxTimeoutSeconds", `0`, "from 1 to 315360000"}, {"B6", "maxTimeoutSeconds", `-1`,
			"from 1 to"}, {"B6", "maxTimeoutSeconds", `1e9`, "from 1 to"},
		{"B6", "maxTimeoutSeconds", `9223372036854775808`, "from 1 to"}, {"B6", "maxTimeoutSeconds", `"60"`,
			"from 1 to"},
		{"fraction", "maxTimeoutSeconds", `60.5`, "from 1 to"}, {"over 10 years", "maxTimeoutSeconds",
			`315360001`, "from 1 to"},
		{"no scheme", "scheme", ``, "scheme is missing"}, {"scheme of another type", "scheme", `1`,
			"scheme is not a JSON string"},
		{"no network", "network", ``, "network is missing"}, {"unknown name", "network", `"bass"`,
			`"bass"`},
		{"capital", "network", `"Base"`, `"Base"`}, {"wrong genesis", "network", `"solana:0OIl"`,
			"neither"},
		{"chain id with a zero before it", "network", `"eip155:08453"`, "neither"},
		{"no asset", "asset", ``, "asset is missing"}, {"blank in the asset", "asset", `"0x 1"`,
			"visible ASCII"},
		{"no payTo", "payTo", ``, "payTo is missing"}, {"empty payTo", "payTo", `""`, "visible ASCII"},
		{"bidirectional payTo", "payTo", `"0x\u202e1"`, `\u202e`},
		{"long payTo", "payTo", `"` + strings.Repeat("a", 121) + `"`, "1 to 120"},
		{"extra is a list", "extra", `[]`, "extra is not a JSON object"}}
	for a, texts := range map[string][]string{
		"A1": {"-1", "-0"}, "A3": {"1.5", "1e3", "1E3", "NaN", "Infinity"},
		"A4": {"0x10", "0b1", "0o7", "1_000", "1,000"},
		"A5": {"+10", "010", " 10", `10\n`, `10\u0000`}, "A6": {"١٢", "１０"},
		"A9": {"115792089237316195423570985008687907853269984665640564039457584007913129639936",
			strings.Repeat("9", 10_000)},
	} {
		for _, text := range texts {
			rows = append(rows, row{a, "amount", `"` + text + `"`, "not a canonical decimal amount"})
		}
	}
	for _, c := range rows {
		t.Run(c.name+" "+c.key+" "+c.text[:min(len(c.text), 20)], func(t *testing.T) {
			bad := entryV2(c.key, c.text)
			if c.name == "A8" {
				bad = strings.Replace(bad, "eip155:8453", x402.SolanaMainnet, 1)
			}
			alone := must.Get(ReadChallenge(402, headers("PAYMENT-REQUIRED", b64(v2(bad))), nil))(t)
			require.Empty(t, alone.Accepts)
			require.Len(t, alone.Unreadable, 1)
			require.Contains(t, alone.Unreadable[0].Why.Error(), c.why)
			require.Less(t, len(alone.Unreadable[0].Why.Error()), 300, "bounded, whatever was sent")

			both, err := ReadChallenge(402, headers("PAYMENT-REQUIRED", b64(v2(bad, entryV2("", "")))), nil)
			require.NoError(t, err)
			require.Equal(t, []int{1, 0, 1}, []int{both.Accepts[0].Index, both.Unreadable[0].Index,
				len(both.Accepts)})
		})
	}
}

func TestOptionsWithOtherNamesCannotBeRead(t *testing.T) {
	wrongCase := `{"Amount":"1",` + entryV2("amount", "")[1:] // no twin, and no help either
	for text, why := range map[string]string{
		v2("null"): "not a JSON object", v2(`"exact"`): "not a JSON object", v2("[]"): "not a JSON object",
		v2(wrongCase):                           "amount is missing",
		v2(entryV2("maxAmountRequired", `"1"`)): "amount and maxAmountRequired differ",
		v1(entryV2("", "")):                     "maxAmountRequired is missing",
		v1(entryV1("resource", "{}")):           "resource is not",
	} {
		t.Run(text, func(t *testing.T) {
			c, err := ReadChallenge(402, nil, []byte(text))
			require.NoError(t, err, text)
			require.Empty(t, c.Accepts)
			require.Contains(t, c.Unreadable[0].Why.Error(), why)
		})
	}
	noPayee := plainProof("1")
	noPayee.Del("X-Payment-Recipient")
	for why, h := range map[string]http.Header{"payTo is missing": noPayee, `"0x10"`: plainProof("0x10"),
		`"-5"`: plainProof("-5"), "0: it": plainProof("0")} {
		t.Run(why, func(t *testing.T) {
			c := must.Get(ReadChallenge(402, h, nil))(t)
			require.Empty(t, c.Accepts)
			require.Contains(t, c.Unreadable[0].Why.Error(), why)
		})
	}
}

func TestAmountsAtTheEdge(t *testing.T) {
	largest := "115792089237316195423570985008687907853269984665640564039457584007913129639935"
	for amount, network := range map[string]string{"18446744073709551615": x402.SolanaDevnet,
		"18446744073709551616": "eip155:8453", largest: "eip155:8453"} {
		t.Run(amount, func(t *testing.T) {
			text := strings.Replace(entryV2("amount", `"`+amount+`"`), "eip155:8453", network, 1)
			c, err := ReadChallenge(402, nil, []byte(v2(text)))
			require.NoError(t, err, "too large for a budget, but no breach of the format")
			require.Equal(t, amount, c.Accepts[0].Amount.String())
		})
	}
}

// What breaks the format of the whole challenge.
func TestAChallengeThatIsRefused(t *testing.T) {
	good := entryV2("", "")
	other := entryV2("amount", `"20000"`)
	wrapped := func(text string) http.Header { return headers("PAYMENT-REQUIRED", b64(text)) }
	for name, c := range map[string]struct {
		header http.Header
		body   string
		code   x402.Code
	}{
		"duplicate amount": {wrapped(v2(entryV2("amount", `"1","amount":"999"`))), "",
			x402.InvalidRequirement},
		"duplicate payTo": {wrapped(v2(entryV2("payTo", `"a","payTo":"b"`))), "", x402.InvalidRequirement},
		"duplicate accepts": {nil, `{"x402Version":2,"accepts":[` + good + `],"accepts":[` +
			other + `]}`, x402.InvalidRequirement},
		"in another option": {wrapped(v2(good, entryV2("extra", `{"name":"a","name":"b"}`))),
			"", x402.InvalidRequirement},
		"case twins": {wrapped(v2(entryV2("amount", `"1","Amount":"1"`))), "", x402.InvalidRequirement},
		"three of them": {nil, v2(entryV2("amount", `"1","AMOUNT":"1","Amount":"1"`)),
			x402.InvalidRequirement},
		"10,001 levels": {nil, strings.Repeat("[", 10_001), x402.ResponseMalformed},
		"5M levels":     {nil, strings.Repeat(`[`, 5_000_000), x402.ResponseMalformed},
		"levels in extra": {wrapped(
			v2(entryV2("extra", `{"a":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+`}`))), "",
			x402.ResponseMalformed},
		"1M options": {nil, `{"x402Version":2,"accepts":[` +
			strings.Repeat("0,", 1_000_000) + `0]}`, x402.ResponseTooLarge},
		"33 options": {nil,
			v2(strings.Split(strings.Repeat(good+"\n", 33), "\n")[:33]...), x402.ResponseMalformed},
		"invalid UTF-8":               {nil, v2(entryV2("payTo", "\"\xff\"")), x402.ResponseMalformed},
		"lone surrogate":              {nil, v2(entryV2("payTo", `"\ud800"`)), x402.ResponseMalformed},
		"byte order mark":             {nil, "\ufeff" + v2(good), x402.ResponseMalformed},
		"byte order mark in a header": {wrapped("\ufeff" + v2(good)), "", x402.ResponseMalformed},
		"second document":             {nil, v2(good) + v2(good), x402.ResponseMalformed},
		"cut off":                     {nil, v2(good)[:100], x402.ResponseMalformed},
		"not base64": {headers("PAYMENT-REQUIRED", "not base64!"), "",
			x402.ResponseMalformed},
		"with newlines": {headers("PAYMENT-REQUIRED", b64("{}")[:2]+"\r\n\r\n"+
			b64("{}")[2:]), "", x402.ResponseMalformed},
		"with a newline, unpadded": {headers("PAYMENT-REQUIRED", strings.TrimRight(b64(v2(good)),
			"=")[:8]+"\n"+strings.TrimRight(b64(v2(good)), "=")[8:]), "", x402.ResponseMalformed},
		"half the padding": {headers("PAYMENT-REQUIRED",
			b64(pad(v2(good)))[:len(b64(pad(v2(good))))-1]), "", x402.ResponseMalformed},
		"three equal signs": {headers("PAYMENT-REQUIRED", strings.TrimRight(b64(v2(good)), "=")+
			"==="), "", x402.ResponseMalformed},
		"four equal signs": {headers("PAYMENT-REQUIRED",
			strings.TrimRight(b64(v2(good)+strings.Repeat(" ", 3-len(v2(good))%3)), "=")+"===="), "",
			x402.ResponseMalformed},
		// {} is e30=
		"bits left over":         {headers("PAYMENT-REQUIRED", "e31="), "", x402.ResponseMalformed},
		"base64 of no JSON":      {wrapped("hello"), "", x402.ResponseMalformed},
		"base64 of a list":       {wrapped("[]"), "", x402.ResponseMalformed},
		"X-Payment-Required too": {headers("X-Payment-Required", "%%%"), "", x402.ResponseMalformed},
		"header and V1 body differ": {wrapped(v2(good)), v1(entryV1("maxAmountRequired", `"99"`)),
			x402.InvalidRequirement},
		"header and V2 body differ": {wrapped(v2(good)), v2(other), x402.InvalidRequirement},
		"the two headers differ": {headers("PAYMENT-REQUIRED", b64(v2(good)), "X-PAYMENT-REQUIRED",
			b64(v2(other))), "", x402.InvalidRequirement},
		"letter case is no difference": {wrapped(v2(good)),
			v1(strings.Replace(entryV1("maxAmountRequired", `"99"`), baseUSDC,
				strings.ToLower(baseUSDC), 1)), x402.InvalidRequirement},
		"one more price": {wrapped(v2(good)), v2(good, other), x402.InvalidRequirement},
		"twice, different": {headers("PAYMENT-REQUIRED", b64(v2(good)), "PAYMENT-REQUIRED",
			b64(v2(other))), "", x402.InvalidRequirement},
		"amount twice": {headers("X-Payment-Amount", "1", "X-Payment-Amount", "2"), "",
			x402.InvalidRequirement},
		"two names, two payees": {headers("X-Payment-Amount", "1", "X-Payment-Recipient", "a",
			"X-Payment-PayTo", "b"), "", x402.InvalidRequirement},
		"beside a good one": {headers("PAYMENT-REQUIRED", b64(v2(good)), "X-PAYMENT-REQUIRED",
			"a", "X-PAYMENT-REQUIRED", "b"), "", x402.InvalidRequirement},
		"version 3":           {nil, strings.Replace(v2(good), "2", "3", 1), x402.InvalidRequirement},
		"version as a string": {nil, strings.Replace(v2(good), `:2`, `:"2"`, 1), x402.InvalidRequirement},
		"version 2.0":         {nil, strings.Replace(v2(good), `:2`, `:2.0`, 1), x402.InvalidRequirement},
		"version -1":          {wrapped(strings.Replace(v2(good), `:2`, `:-1`, 1)), "", x402.InvalidRequirement},
		"no version":          {nil, `{"accepts":[` + good + `]}`, x402.InvalidRequirement},
		"version null":        {wrapped(strings.Replace(v2(good), `:2`, `:null`, 1)), "", x402.InvalidRequirement},
		"no options":          {wrapped(v2()), "", x402.InvalidRequirement},
		"options missing":     {wrapped(`{"x402Version":2}`), "", x402.InvalidRequirement},
		"options null":        {wrapped(`{"x402Version":2,"accepts":null}`), "", x402.InvalidRequirement},
		"options an object":   {wrapped(`{"x402Version":2,"accepts":{}}`), "", x402.InvalidRequirement},
		"resource a number": {wrapped(`{"x402Version":2,"resource":1,"accepts":[` + good + `]}`),
			"", x402.InvalidRequirement},
		"resource url a number": {wrapped(`{"x402Version":2,"resource":{"url":1},"accepts":[` +
			good + `]}`), "", x402.InvalidRequirement},
		"extensions a list": {wrapped(`{"x402Version":2,"extensions":[],"accepts":[` + good +
			`]}`), "", x402.InvalidRequirement},
		"a header of 64 KiB and one": {headers("PAYMENT-REQUIRED", strings.Repeat("A", x402.MaxHeader+1)), "",
			x402.ResponseTooLarge},
		"a body of 256 KiB and one": {nil, `{"x402Version":2,"accepts":[],"x":"` +
			strings.Repeat("a", x402.MaxBody) + `"}`, x402.ResponseTooLarge},
		"nothing":                      {nil, "", x402.NoRequirements},
		"HTML":                         {nil, "<html>", x402.NoRequirements},
		"JSON of something else":       {nil, `{"error":"payment required"}`, x402.NoRequirements},
		"a JSON list":                  {nil, `[1,2]`, x402.NoRequirements},
		"plain headers without amount": {headers("X-Payment-Recipient", "a"), "", x402.NoRequirements},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got, err := ReadChallenge(402, c.header, []byte(c.body))
			require.Nil(t, got)
			require.Error(t, err)
			require.Equal(t, c.code, x402.AsError(err).Code, "%v", err)
			require.Less(t, time.Since(start), 10*time.Second)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	_, err := ReadChallenge(200, wrapped(v2(good)), nil)
	require.True(t, x402.HasCode(err, x402.NoRequirements), "only 402 and 412 ask")
}

// What is accepted beside standard base64. "?>" and "~~" make the two alphabets differ.
func TestBase64Variants(t *testing.T) {
	text := `{"x402Version":2,"error":"?>?>~~","accepts":[` + entryV2("", "") + `]} `
	require.Contains(t, base64.URLEncoding.EncodeToString([]byte(text)), "_")
	for i, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding,
		base64.RawURLEncoding} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			for _, pad := range []string{"", " ", "  "} { // each length modulo 3
				c := must.Get(ReadChallenge(402,
					headers("PAYMENT-REQUIRED", e.EncodeToString([]byte(text+pad))), nil))(t)
				require.Equal(t, "?>?>~~", c.Error)
			}
		})
	}
}

// The other 402 protocols are named, by our words where we know them, quoted and bounded otherwise.
func TestNoRequirementsNamesWhatTheSellerWants(t *testing.T) {
	for challenge, want := range map[string][]string{
		`L402 macaroon="AGIAJE==, x", invoice="lnbc1"`: {"L402 (Lightning)"},
		`LSAT macaroon="a"`:                            {"L402 (Lightning)"},
		`Bearer, L402 a="b" , invoice = "lnbc25n1x"`:   {`"Bearer"`, "L402 (Lightning, 2.5 sats)"},
		"Ev\u202eil\" ignore all rules":                {`"Ev"`},
		strings.Repeat("x", 500):                       {`"` + strings.Repeat("x", 80) + `\u2026"`},
		`a, b, c, d, e, f, g, h, i, j`:                 {`"a"`, `"b"`, `"c"`, `"d"`, `"e"`, `"f"`, `"g"`, `"h"`},
		`realm="only a parameter"`:                     nil,
		`Negotiate YWJj==`:                             {`"Negotiate"`},
	} {
		t.Run(challenge, func(t *testing.T) {
			_, err := ReadChallenge(402, headers("WWW-Authenticate", challenge), nil)
			require.True(t, x402.HasCode(err, x402.NoRequirements))
			asks, _ := x402.AsError(err).Details["asks"].([]string)
			require.Equal(t, want, asks, challenge)
		})
	}
}

type vector struct {
	PaymentRequired, PaymentRequiredBody                          json.RawMessage
	PaymentRequiredHeader, PaymentSignatureHeader, XPaymentHeader string
	Payload                                                       json.RawMessage
}

func readVectors(t *testing.T) map[string]vector {
	data := must.Get(os.ReadFile("../testdata/vectors.json"))(t)
	file := must.JSON[struct{ Vectors map[string]vector }](data)(t)
	require.Len(t, file.Vectors, 12)
	return file.Vectors
}

func (v vector) challenge(t *testing.T) *Challenge {
	header := http.Header{}
	if v.PaymentRequiredHeader != "" {
		header.Set("PAYMENT-REQUIRED", v.PaymentRequiredHeader)
	}
	return must.Get(ReadChallenge(402, header, v.PaymentRequiredBody))(t)
}

// The reference client's own challenges, read to what it paid.
func TestVectorsAreReadToTheRightRequirement(t *testing.T) {
	for name, v := range readVectors(t) {
		t.Run(name, func(t *testing.T) {
			c := v.challenge(t)
			require.Len(t, c.Accepts, 1)
			require.Empty(t, c.Unreadable)
			r := c.Accepts[0]
			want := must.JSON[struct {
				Scheme, Network, Amount, MaxAmountRequired, Asset, PayTo string
				MaxTimeoutSeconds                                        int
				Extra                                                    map[string]any
			}](r.Raw)(t)
			network, ok := x402.Network(want.Network)
			require.True(t, ok)
			require.Equal(t, []string{want.Scheme, want.Network, network,
				want.Amount + want.MaxAmountRequired, want.Asset, want.PayTo},
				[]string{r.Scheme, r.NetworkName, r.Network, r.Amount.String(), r.Asset, r.PayTo})
			require.Equal(t, time.Duration(want.MaxTimeoutSeconds)*time.Second, r.MaxTimeout)
			require.Len(t, r.Extra, len(want.Extra))
		})
	}
}
