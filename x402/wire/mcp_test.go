package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func tool(members string) MCPMessage {
	return MCPMessage{Result: json.RawMessage(`{"isError":true,` + members + `}`)}
}

func texts(items ...string) string {
	var list []string
	for _, item := range items {
		list = append(list, `{"type":"text","text":`+string(jsonString(item))+`}`)
	}
	return `"content":[` + strings.Join(list, ",") + `]`
}

func rpcError(code int64, data string) MCPMessage {
	return MCPMessage{Code: code, Data: json.RawMessage(data)}
}

// One row per way to ask, and per thing that looks like one and is none.
func TestReadMCPChallengeFindsTheDialect(t *testing.T) {
	two, one := v2(entryV2("", "")), v1(entryV1("", ""))
	noContent := `"content":[]`
	for name, c := range map[string]struct {
		message MCPMessage
		dialect x402.Dialect // "": nothing is asked
		version int
	}{
		"structured content":   {tool(`"structuredContent":` + two + "," + noContent), dialectMCP, 2},
		"and the same as text": {tool(`"structuredContent":` + two + "," + texts(two)), dialectMCP, 2},
		"version 1":            {tool(`"structuredContent":` + one + "," + noContent), dialectMCPV1, 1},
		"another error as text": {tool(`"structuredContent":` + two + "," +
			texts("Payment required")), dialectMCP, 2},
		"text alone":             {tool(texts(two)), dialectMCP, 2},
		"text, version 1":        {tool(texts(one)), dialectMCPV1, 1},
		"text behind other text": {tool(texts("Payment required", "{broken", " \n"+two)), dialectMCP, 2},
		"the output schema's own content": {tool(`"structuredContent":{"rows":[]},` + texts(two)),
			dialectMCP, 2},
		"after an image": {tool(
			`"content":[{"type":"image","data":"","mimeType":"image/png"},{"type":"text","text":` +
				string(jsonString(two)) + `}]`), dialectMCP, 2},
		"Cloudflare": {tool(`"_meta":{"x402/error":` + two + `},` + texts(two)), dialectMCPCloudflare, 2},
		"Cloudflare, version 1": {tool(`"_meta":{"x402/error":` + one + `},` + texts(one)),
			dialectMCPCloudflare, 1},
		"_meta, the exported key": {tool(`"_meta":{"x402/payment-required":` + two + `},` +
			noContent), dialectMCP, 2},
		"_meta of what has no isError": {MCPMessage{Result: json.RawMessage(
			`{"contents":[],"_meta":{"x402/payment-required":` + two + `}}`)}, dialectMCP, 2},
		"error 402":            {rpcError(402, two), dialectMCPError, 2},
		"error 402, version 1": {rpcError(402, one), dialectMCPError, 1},
		"error -402":           {rpcError(-402, two), dialectMCPError, 2},
		"error -32042":         {rpcError(-32042, two), dialectMCPError, 2},
		"error -32402":         {rpcError(-32402, two), dialectMCPError, 2},
		"error -32803":         {rpcError(-32803, two), dialectMCPError, 2},
		"npm x402-mcp": {tool(`"structuredContent":` +
			strings.Replace(one, "X-PAYMENT header is required", "_meta.x402.payment is required", 1) + "," +
			texts(one)), dialectMCPV1, 1},
		"the 2026 extension": {MCPMessage{Result: json.RawMessage(
			`{"resultType":"payment_required","paymentRequired":` + two + `}`)}, dialectMCPExtension, 2},
		"a success that speaks of prices": {MCPMessage{Result: json.RawMessage(`{"structuredContent":` +
			two + `,` + texts(two) + `}`)}, "", 0},
		"isError in words": {MCPMessage{Result: json.RawMessage(`{"isError":"true",` +
			texts(two) + `}`)}, "", 0},
		"isError in another case": {MCPMessage{Result: json.RawMessage(`{"iserror":true,` +
			texts(two) + `}`)}, "", 0},
		"a tool's own error":         {tool(texts("city not found")), "", 0},
		"a tool's own error in JSON": {tool(texts(`{"error":"city not found","error":2}`)), "", 0},
		"Cloudflare could not compute a price": {tool(
			`"_meta":{"x402/error":{"x402Version":2,"error":"PRICE_COMPUTE_FAILED"}},` + noContent), "", 0},
		"accepts without a version": {tool(texts(`{"accepts":[]}`)), "", 0},
		"-32042 asks to open a URL": {rpcError(-32042,
			`{"elicitations":[{"mode":"url","url":"https://a.example"}]}`), "", 0},
		"another error": {rpcError(-32603, two), "", 0},
		"a result of another type": {MCPMessage{Result: json.RawMessage(
			`{"resultType":"input_required","inputRequests":{}}`)}, "", 0},
		"a result that is no object": {MCPMessage{Result: json.RawMessage(`[` + two + `]`)}, "", 0},
		"_meta that is none":         {tool(`"_meta":7,` + texts("x")), "", 0},
		"text that is none":          {tool(`"content":[{"type":"text","text":7},{"type":"text"},null]`), "", 0},
		"the second one is for elsewhere": {tool(texts(two, v2(entryV2("network", `"eip155:84532"`)))),
			dialectMCP, 2},
		"the second one cannot be read": {tool(texts(two, `{"x402Version":9,"accepts":[]}`)),
			dialectMCP, 2},
		"structured content before text of two": {tool(`"structuredContent":` + two + "," + texts(one)),
			dialectMCP, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := must.Get(ReadMCPChallenge(c.message))(t)
			if c.dialect == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, []any{c.dialect, c.version}, []any{got.Dialect, got.Version})
			require.True(t, got.Dialect.MCP())
			require.False(t, got.Dialect.WalletSettles())
			require.Len(t, got.Accepts, 1)
			require.Equal(t, map[int]string{1: entryV1("", ""), 2: entryV2("", "")}[c.version],
				string(got.Accepts[0].Raw), "the very bytes")
		})
	}
}

func TestMCPChallengesThatAreRefused(t *testing.T) {
	two := v2(entryV2("", ""))
	dear := v2(entryV2("amount", `"20000"`))
	entries := strings.TrimSuffix(strings.Repeat(entryV2("", "")+",", x402.MaxAccepts+1), ",")
	for name, c := range map[string]struct {
		message MCPMessage
		code    x402.Code
	}{
		"two prices: structured content, text": {tool(`"structuredContent":` + two + "," + texts(dear)),
			x402.InvalidRequirement},
		"two prices: two texts": {tool(texts(two, dear)), x402.InvalidRequirement},
		"two prices: Cloudflare, text": {tool(`"_meta":{"x402/error":` + two + `},` + texts(dear)),
			x402.InvalidRequirement},
		"two prices: the extension, _meta": {MCPMessage{Result: json.RawMessage(
			`{"resultType":"payment_required","paymentRequired":` + two +
				`,"_meta":{"x402/payment-required":` + dear + `}}`)}, x402.InvalidRequirement},
		"two structured contents": {tool(`"structuredContent":` + dear +
			`,"structuredContent":` + two), x402.InvalidRequirement},
		"two keys that differ in case": {tool(`"structuredContent":` + two + `,"StructuredContent":` +
			dear), x402.InvalidRequirement},
		"a key twice in a text": {tool(texts(strings.Replace(two, `"amount"`,
			`"amount":"1","amount"`, 1))), x402.InvalidRequirement},
		"a version not spoken": {tool(texts(strings.Replace(two, `Version":2`, `Version":3`,
			1))), x402.InvalidRequirement},
		"no options":       {tool(texts(`{"x402Version":2,"accepts":[]}`)), x402.InvalidRequirement},
		"too many options": {tool(texts(v2(entries))), x402.ResponseMalformed},
		"too long":         {tool(texts(two + strings.Repeat(" ", x402.MaxBody))), x402.ResponseTooLarge},
		"too deep": {tool(texts(strings.Replace(two, `{"x402Version"`, `{"x":`+
			strings.Repeat("[", 70)+strings.Repeat("]", 70)+`,"x402Version"`, 1))), x402.ResponseMalformed},
		"the extension without its member": {MCPMessage{Result: json.RawMessage(
			`{"resultType":"payment_required"}`)}, x402.ResponseMalformed},
		"the extension, nothing readable": {MCPMessage{Result: json.RawMessage(
			`{"resultType":"payment_required","paymentRequired":7}`)}, x402.ResponseMalformed},
		"error 402 without data": {rpcError(402, ""), x402.NoRequirements},
		"error 402 about something else": {rpcError(402, `{"message":"top up your account"}`),
			x402.NoRequirements},
		"error 402, a key twice": {rpcError(402, strings.Replace(two, `"amount"`,
			`"amount":"1","amount"`, 1)), x402.InvalidRequirement},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadMCPChallenge(c.message)
			require.Nil(t, got)
			require.Equal(t, c.code, x402.AsError(err).Code, "%v", err)
		})
	}
}

// How each dialect is paid: by what its servers take.
func TestAttach(t *testing.T) {
	payload := json.RawMessage(`{"x402Version":2,"accepted":{ "amount" : "1" }}`)
	encoded := b64(string(payload))
	object, text := string(payload), string(jsonString(encoded))
	for dialect, want := range map[x402.Dialect]Attachment{
		x402.DialectV2Header: {Header: "PAYMENT-SIGNATURE", Value: encoded},
		x402.DialectV2Body:   {Header: "PAYMENT-SIGNATURE", Value: encoded},
		x402.DialectXProof:   {Header: "PAYMENT-SIGNATURE", Value: encoded},
		x402.DialectV1Body:   {Header: "X-PAYMENT", Value: encoded},
		dialectMCP:           {Meta: map[string]json.RawMessage{"x402/payment": json.RawMessage(object)}},
		dialectMCPError:      {Meta: map[string]json.RawMessage{"x402/payment": json.RawMessage(object)}},
		dialectMCPExtension:  {Meta: map[string]json.RawMessage{"x402/payment": json.RawMessage(object)}},
		dialectMCPV1: {Meta: map[string]json.RawMessage{"x402/payment": json.RawMessage(object),
			"x402.payment": json.RawMessage(text)}},
		dialectMCPCloudflare: {Meta: map[string]json.RawMessage{"x402/payment": json.RawMessage(text)}},
	} {
		t.Run(fmt.Sprint(dialect), func(t *testing.T) {
			require.Equal(t, want, Attach(dialect, payload), dialect)
		})
	}
}

func TestReadMCPSettlement(t *testing.T) {
	paid, refused := `{"success":true,"transaction":"0xabc","network":"base"}`,
		`{"success":false,"errorReason":"insufficient_funds","transaction":"","network":"base"}`
	meta := func(members string) MCPMessage {
		return MCPMessage{Result: json.RawMessage(`{"content":[],"_meta":{` + members + `}}`)}
	}
	for name, c := range map[string]struct {
		message MCPMessage
		want    string // the transaction, "refused", "" for none, or "!" for an error
	}{
		"the specification's key": {meta(`"x402/payment-response":` + paid), "0xabc"},
		"npm x402-mcp's key":      {meta(`"x402.payment-response":` + paid), "0xabc"},
		"in base64":               {meta(`"x402/payment-response":` + string(jsonString(b64(paid)))), "0xabc"},
		"both, the same": {meta(`"x402/payment-response":` + paid + `,"x402.payment-response":` +
			paid), "0xabc"},
		"both, contradicting": {meta(`"x402/payment-response":` + paid + `,"x402.payment-response":` +
			refused), "!"},
		"a failure":              {meta(`"x402/payment-response":` + refused), "refused"},
		"a failure in an error":  {rpcError(-32603, `{"x402/payment-response":`+refused+`}`), "refused"},
		"of another key":         {meta(`"x402/Payment-Response":` + paid), ""},
		"null":                   {meta(`"x402/payment-response":null`), ""},
		"none":                   {MCPMessage{Result: json.RawMessage(`{"content":[]}`)}, ""},
		"none in an error":       {rpcError(-32603, ""), ""},
		"a number":               {meta(`"x402/payment-response":7`), "!"},
		"a list":                 {meta(`"x402/payment-response":[true]`), "!"},
		"text that is no base64": {meta(`"x402/payment-response":"paid!"`), "!"},
		"success in words":       {meta(`"x402/payment-response":{"success":"true","transaction":"0xabc"}`), "!"},
		"a key twice":            {meta(`"x402/payment-response":{"success":false,"success":true}`), "!"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ReadMCPSettlement(c.message)
			switch c.want {
			case "!":
				require.Error(t, err)
				require.Nil(t, s)
			case "":
				require.NoError(t, err)
				require.Nil(t, s)
			case "refused":
				require.NoError(t, err)
				require.False(t, s.Success)
				require.Equal(t, "insufficient_funds", s.ErrorReason)
			default:
				require.NoError(t, err)
				require.True(t, s.Success)
				require.Equal(t, c.want, s.Transaction)
			}
		})
	}
}

// An echo has no header to fit into.
func TestExtensionsAreEchoedWhollyOverMCP(t *testing.T) {
	declared := `{"bazaar":{"info":{},"schema":"` + strings.Repeat("s", maxEcho) + `"}}`
	c := must.Get(ReadMCPChallenge(tool(texts(`{"x402Version":2,"extensions":` + declared + `,"accepts":[` +
		entryV2("", "") + `]}`))))(t)
	payload := must.Get(EncodePayload(c, c.Accepts[0], json.RawMessage(`{}`), nil))(t)
	require.Contains(t, string(payload), `"extensions":`+declared)
}

// The seeds of these targets lie in testdata/fuzz; `go test` runs them every time.

// Whatever a seller sends: no panic, an error with one of our four codes, or a challenge of
// positive amounts whose every option can be answered.
func FuzzReadChallenge(f *testing.F) {
	f.Fuzz(func(t *testing.T, required, other, amount, auth string, body []byte) {
		header := http.Header{}
		for name, value := range map[string]string{"PAYMENT-REQUIRED": required, "X-PAYMENT-REQUIRED": other,
			"X-PAYMENT-AMOUNT": amount, "WWW-Authenticate": auth} {
			header.Set(name, value)
		}
		header.Set("X-Payment-Recipient", payeeSVM)
		header.Set("X-Payment-Token", devnetUSDC)
		header.Set("X-Payment-Network", x402.SolanaDevnet)
		c, err := ReadChallenge(402, header, body)
		if err != nil {
			require.Nil(t, c)
			require.Contains(t, []x402.Code{x402.NoRequirements, x402.InvalidRequirement,
				x402.ResponseMalformed, x402.ResponseTooLarge}, x402.AsError(err).Code)
			return
		}
		options := len(c.Accepts) + len(c.Unreadable)
		require.True(t, 0 < options && options <= x402.MaxAccepts)
		for _, r := range c.Accepts {
			require.False(t, r.Amount.IsZero())
			require.Positive(t, r.MaxTimeout)
			network, ok := x402.Network(r.NetworkName)
			require.True(t, ok && network == r.Network)
			payload := must.Get(EncodePayload(c, r, json.RawMessage(`{}`), nil))(t)
			require.NoError(t, x402.DecodeStrict(payload, x402.MaxBody, nil))
			require.True(t, c.Version == 1 || bytes.Contains(payload, RequirementJSON(r)))
		}
	})
}

// Whatever an MCP server sends: the same, and nothing is asked by what is no error and has no word
// for it.
func FuzzReadMCP(f *testing.F) {
	f.Fuzz(func(t *testing.T, result []byte, code int64, data []byte) {
		m := MCPMessage{Result: result, Code: code, Data: data}
		if len(result) == 0 {
			m.Result = nil
		}
		if s, err := ReadMCPSettlement(m); err == nil && s != nil {
			requireSettlement(t, s)
		}
		c, err := ReadMCPChallenge(m)
		if err != nil {
			require.Nil(t, c)
			require.Contains(t, []x402.Code{x402.NoRequirements, x402.InvalidRequirement,
				x402.ResponseMalformed, x402.ResponseTooLarge}, x402.AsError(err).Code)
			return
		}
		if c == nil {
			return
		}
		require.True(t, c.Dialect.MCP())
		require.True(t, json.Valid(m.Result) || (m.Result == nil && json.Valid(m.Data)))
		for _, r := range c.Accepts {
			require.False(t, r.Amount.IsZero())
			payload := must.Get(EncodePayload(c, r, json.RawMessage(`{}`), nil))(t)
			require.NotEmpty(t, Attach(c.Dialect, payload).Meta)
			require.True(t, c.Version == 1 || bytes.Contains(payload, r.Raw))
		}
	})
}

func FuzzReadSettlement(f *testing.F) {
	f.Fuzz(func(t *testing.T, v2, v1 string, body []byte) {
		header := http.Header{}
		header.Set("PAYMENT-RESPONSE", v2)
		header.Set("X-PAYMENT-RESPONSE", v1)
		if s, err := ReadSettlement(header); err == nil && s != nil {
			requireSettlement(t, s)
		}
		if s, err := DecodeSettlement(body); err == nil {
			requireSettlement(t, s)
		}
	})
}

func requireSettlement(t *testing.T, s *Settlement) {
	require.Equal(t, must.JSON[map[string]any](s.Raw)(t)["success"], s.Success)
	require.LessOrEqual(t, len(s.Transaction), x402.MaxIdentifier)
	if s.Amount != "" {
		must.Get(money.ParseAmount(s.Amount))(t)
	}
}
