package tools

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// Arguments arrive as hosts write them (claude-code#59227, #93179, gemini-cli#27403, n8n#21500).
func TestArgumentsAsHostsSendThem(t *testing.T) {
	three := 3
	get := PayIn{URL: "https://a.example"}
	with := func(change func(*PayIn)) *PayIn {
		in := get
		change(&in)
		return &in
	}
	for _, a := range []struct {
		name, arguments string
		want            any
	}{
		{"headers as text", `{"url":"https://a.example","headers":"{\"accept\":\"text/plain\"}"}`,
			with(func(p *PayIn) { p.Headers = map[string]string{"accept": "text/plain"} })},
		{"headers as empty text", `{"url":"https://a.example","headers":""}`, &get},
		{"null for all", `{"url":"https://a.example","headers":null,"body":null,"maxAmount":null}`, &get},
		{"empty for all", `{"url":"https://a.example","method":"","headers":"","body":"","maxAmount":"",` +
			`"network":"","asset":"","idempotencyKey":""}`, &get},
		{"all as text", `"{\"url\":\"https://a.example\"}"`, &get},
		{"a body in its order", `{"url":"https://a.example","body":{"z":1,"a":[1.0,"<é>"]}}`,
			with(func(p *PayIn) { p.Body = `{"z":1,"a":[1.0,"<é>"]}` })},
		{"a list for a body", `{"url":"https://a.example","body":[1,{"b":2}]}`,
			with(func(p *PayIn) { p.Body = `[1,{"b":2}]` })},
		{"a body that is JSON text", `{"url":"https://a.example","body":"{\"q\": 1}"}`,
			with(func(p *PayIn) { p.Body = `{"q": 1}` })},
		{"dollars as a number", `{"url":"https://a.example","maxAmount":0.05}`,
			with(func(p *PayIn) { p.MaxAmount = "$0.05" })},
		{"dollars with a point", `{"url":"https://a.example","maxAmount":"0.05"}`,
			with(func(p *PayIn) { p.MaxAmount = "$0.05" })},
		{"nothing", `{"url":"https://a.example","maxAmount":0}`, with(func(p *PayIn) { p.MaxAmount = "0" })},
		{"atomic units", `{"url":"https://a.example","maxAmount":"50000"}`,
			with(func(p *PayIn) { p.MaxAmount = "50000" })},
		{"Gemini CLI", `{"url":"https://a.example","wait_for_previous":true}`, &get},
		{"n8n", `{"url":"https://a.example","toolCallId":"call_1","sessionId":"s","action":"sendMessage",` +
			`"chatInput":"x"}`, &get},
		{"Cline", `{"url":"https://a.example","task_progress":"- [x] a"}`, &get},
		{"Cursor", `{"random_string":"dummy"}`, &struct{}{}},
		{"empty text for none", `""`, &struct{}{}},
		{"an object as text for none", `"{}"`, &struct{}{}},
		{"a number as text", `{"limit":"3"}`, &HistoryIn{Limit: &three}},
		{"a whole number with a point", `{"limit":3.0}`, &HistoryIn{Limit: &three}},
		{"no number", `{"limit":"","evidence":""}`, &HistoryIn{}},
		{"a boolean as text", `{"evidence":"true"}`, &HistoryIn{Evidence: true}},
		{"Python's boolean", `{"freeze":"True","tokenAccount":""}`, &revokeIn{Freeze: true}},
		{"a price as a number", `{"query":"x","maxPrice":0.5,"limit":"3"}`,
			&DiscoverIn{Query: "x", MaxPrice: "$0.5", Limit: &three}},
		{"a whole price", `{"maxPrice":2}`, &DiscoverIn{MaxPrice: "2"}},
		{"a tool's arguments as text", `{"server":"s","tool":"t","arguments":"{\"city\":\"Lisbon\"}"}`,
			&CallIn{Server: "s", Tool: "t", Arguments: json.RawMessage(`{"city":"Lisbon"}`)}},
		{"requests as text", `{"requests":"[{\"url\":\"https://a.example\"}]","maxAmount":1.5}`,
			&ManyIn{Requests: []ManyRequest{{URL: "https://a.example"}}, MaxAmount: "$1.5"}},
		{"requests as texts", `{"requests":["{\"url\":\"https://a.example\",\"body\":{\"q\":1}}","https://b.example"],` +
			`"maxAmount":"$1"}`, &ManyIn{Requests: []ManyRequest{{URL: "https://a.example", Body: `{"q":1}`},
			{URL: "https://b.example"}}, MaxAmount: "$1"}},
	} {
		t.Run(a.name, func(t *testing.T) {
			var got any
			switch a.want.(type) {
			case *PayIn:
				got = &PayIn{}
			case *HistoryIn:
				got = &HistoryIn{}
			case *DiscoverIn:
				got = &DiscoverIn{}
			case *CallIn:
				got = &CallIn{}
			case *ManyIn:
				got = &ManyIn{}
			case *revokeIn:
				got = &revokeIn{}
			default:
				got = &struct{}{}
			}
			require.NoError(t, ReadArguments(json.RawMessage(a.arguments), got))
			require.Equal(t, a.want, got)
		})
	}
}

// What is not what a host does is refused with what would have been right, and nothing secret is repeated.
func TestArgumentsThatAreRefused(t *testing.T) {
	for _, a := range []struct{ name, arguments, message, hint string }{
		{"two readings", `{"maxAmount":50000}`, "50000 atomic units or $50000", `"$50000"`},
		{"two readings of 1", `{"maxAmount":1}`, "1 atomic units or $1", `"1"`},
		{"two readings of a float", `{"maxAmount":50000.0}`, "50000 atomic units or $50000", `"$50000"`},
		{"less than nothing", `{"maxAmount":-0.05}`, "maxAmount must be a string, not number", ""},
		{"another letter case", `{"maxamount":"1"}`, `unknown field "maxamount"`, "maxAmount"},
		{"underscores", `{"idempotency_key":"1"}`, `unknown field "idempotency_key"`, "idempotencyKey"},
		{"a letter left out", `{"metod":"GET"}`, `unknown field "metod"`, "method"},
		{"a letter too many", `{"headerss":{}}`, `unknown field "headerss"`, "headers"},
		{"in a list", `{"requests":[{"hedaers":{}}]}`, `unknown field "hedaers"`, "headers"},
		{"a timeout", `{"timeout":30}`, `unknown field "timeout"`, "input schema"},
		{"a passphrase", `{"passphrase":"hunter2"}`, "never goes through a model", "leave passphrase out"},
		{"a token account", `{"tokenAccount":"hunter2"}`, "config.toml names it", "leave tokenAccount out"},
		{"force", `{"force":true}`, "the person does that", "leave force out"},
		{"a path", `{"outputPath":"hunter2"}`, "the owner's choice", "leave outputPath out"},
		{"a header that is a number", `{"headers":{"x-n":5}}`, "headers must be a string, not number", ""},
		{"a list of headers", `{"headers":[{"name":"accept"}]}`, "headers must be an object", ""},
		{"text that is no object", `{"headers":"accept: x"}`, "headers must be an object, not string", ""},
		{"a key twice, as text", `{"headers":"{\"a\":\"1\",\"a\":\"2\"}"}`, "cannot be read", ""},
		{"in a list, twice", `{"requests":"[{\"url\":\"a\",\"url\":\"b\"}]"}`, "cannot be read", ""},
		{"a number for a body", `{"body":5}`, "body must be a string, not number", ""},
		{"a word for a boolean", `{"freeze":"yes"}`, "freeze must be a boolean, not string", ""},
	} {
		t.Run(a.name, func(t *testing.T) {
			var err error
			switch a.name {
			case "in a list", "in a list, twice":
				err = ReadArguments(json.RawMessage(a.arguments), &ManyIn{})
			case "a word for a boolean":
				err = ReadArguments(json.RawMessage(a.arguments), &revokeIn{})
			default:
				err = ReadArguments(json.RawMessage(a.arguments), &PayIn{})
			}
			f := ErrorOf(err)
			require.Equal(t, x402.InvalidArgument, f.Error)
			require.Equal(t, x402.Actor("agent"), f.FixedBy)
			require.Equal(t, x402.Change, f.Next.Do)
			require.Contains(t, f.Message, a.message)
			require.Contains(t, f.Hint, a.hint)
			require.NotContains(t, f.Message+f.Hint, "hunter2")
		})
	}
}

// A mounted tool's arguments are read by the schema that it is shown with.
func TestArgumentsOfAMountedTool(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"o":{"type":"object"},"a":{"type":"array"},
		"n":{"type":"number"},"i":{"type":"integer"},"b":{"type":"boolean"},"s":{"type":"string"},
		"e":{"type":["string","null"]},"action":{"type":"string"},"odd":true}}`)
	given := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal([]byte(`{"o":"{\"x\":1}","a":"[1]","n":"1.5","i":"2","b":"false","s":"{}",
		"e":"","action":"go","wait_for_previous":true,"own":1}`), &given))
	fit(given, schema)
	text, err := json.Marshal(given)
	require.NoError(t, err)
	require.JSONEq(t, `{"o":{"x":1},"a":[1],"n":1.5,"i":2,"b":false,"s":"{}","e":"","action":"go","own":1}`,
		string(text))

	given = map[string]json.RawMessage{"o": json.RawMessage(`""`), "i": json.RawMessage(`"two"`)}
	fit(given, schema)
	require.Equal(t, map[string]json.RawMessage{"i": json.RawMessage(`"two"`)}, given)
	fit(given, json.RawMessage(`{"type":"object","properties":[]}`))
	require.Len(t, given, 1)
}

// A body that is no text comes in base64, and is what is sent.
func TestBodiesInBase64(t *testing.T) {
	for _, body := range [][]byte{{0}, {0xff, 0xfe, 0x00, '\n'}, []byte("text"), []byte(`{"a":1}`), make([]byte, 3000)} {
		text := base64.StdEncoding.EncodeToString(body)
		for _, in := range []purchase{PayIn{URL: "https://a.example", BodyBase64: text},
			estimateIn{URL: "https://a.example", Method: "POST", BodyBase64: text}} {
			q, err := in.request(nil)
			require.NoError(t, err)
			require.Equal(t, body, q.Body)
		}
		var row ManyIn
		require.NoError(t, ReadArguments(json.RawMessage(`{"requests":[{"bodyBase64":"`+text+`"}]}`), &row))
		require.Equal(t, text, row.Requests[0].BodyBase64)
	}
	for name, in := range map[string]PayIn{
		"two bodies": {Body: "a", BodyBase64: "YQ=="}, "no padding": {BodyBase64: "YQ"},
		"url-safe": {BodyBase64: "_-8="}, "lines": {BodyBase64: "YWFh\nYWFh"},
		"not zero at the end": {BodyBase64: "YR=="},
		"a data URL":          {BodyBase64: "data:image/png;base64,YQ=="}, "blanks": {BodyBase64: "YQ== "},
	} {
		in.URL = "https://a.example"
		_, err := in.request(nil)
		require.Equal(t, x402.InvalidArgument, ErrorOf(err).Error, name)
		_, err = (&Wallet{}).PayMany(t.Context(), ManyIn{MaxAmount: "$1",
			Requests: []ManyRequest{{URL: in.URL, Body: in.Body, BodyBase64: in.BodyBase64}}})
		require.ErrorContains(t, err, "request 1: bod", name)
	}
}
