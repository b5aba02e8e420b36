package paywall

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Every dialect asks in its own words, is paid in its own, and gives its receipt where its clients
// look.
func TestDialects(t *testing.T) {
	for name, c := range map[string]struct {
		dialect string
		version int
		asks    x402.Dialect
		receipt string
	}{
		"result, version 2": {dialectResult, 2, "mcp", wire.MetaReceipt},
		"result, version 1": {dialectResult, 1, "mcp-v1", wire.MetaReceipt},
		"error, version 2":  {dialectError, 2, "mcp-error", wire.MetaReceipt},
		"error, version 1":  {dialectError, 1, "mcp-error", wire.MetaReceipt},
		"x402-mcp":          {dialectX402MCP, 1, "mcp-v1", wire.MetaReceiptMCPV1},
		"cloudflare":        {dialectCloudflare, 2, "mcp-cloudflare", wire.MetaReceipt},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(_ *lab, o *Options) { o.Dialect, o.Version = c.dialect, c.version })
			g := l.call(t, nil, nil)
			asked := g.challenge()
			require.Equal(t, []any{c.asks, c.version}, []any{asked.Dialect, asked.Version})
			require.Len(t, asked.Accepts, 2)
			switch c.dialect {
			case dialectError:
				require.EqualValues(t, 402, g.Code)
			case dialectCloudflare:
				require.NotContains(t, string(g.Result), "structuredContent")
				require.Equal(t, "PAYMENT_REQUIRED", asked.Error)
			case dialectX402MCP:
				require.Equal(t, "_meta.x402.payment is required", asked.Error)
				fallthrough
			default:
				var result struct {
					StructuredContent json.RawMessage
					Content           []struct{ Text string }
				}
				require.NoError(t, json.Unmarshal(g.Result, &result))
				require.True(t, g.isError)
				require.Len(t, result.Content, 1)
				require.JSONEq(t, string(result.StructuredContent), result.Content[0].Text,
					"both, because some clients read only one")
			}
			if c.version == 1 {
				require.Equal(t, "base-sepolia", asked.Accepts[0].NetworkName)
				require.Equal(t, "mcp://tool/search", asked.Resource.URL)
			}
			g = l.call(t, nil, meta(asked, l.payer.sign(t, asked, 0, nil)))
			require.Equal(t, product, g.text, "%s %s", g.Result, g.Data)
			require.Contains(t, g.meta, c.receipt)
			require.Equal(t, l.Settlements()[0].Transaction, g.receipt().Transaction)
			l.payer.openSolana(t)
			asked = l.call(t, nil, nil).challenge()
			g = l.call(t, nil, meta(asked, l.payer.signSolana(t, asked, 1)))
			require.Equal(t, product, g.text)
			require.Len(t, l.Settlements(), 2)
			require.Equal(t, sandbox.Solana, l.Settlements()[1].Network)
			solana, _ := x402.Network(g.receipt().Network)
			require.Equal(t, sandbox.Solana, solana)

			// What is wrong is said in the dialect, too.
			g = l.call(t, nil, map[string]any{"x402/payment": map[string]any{"x402Version": 2}})
			require.EqualValues(t, -32602, g.Code)
			g = l.call(t, nil, map[string]any{"x402/payment": "%%%"})
			require.EqualValues(t, -32700, g.Code)
			asked = l.call(t, nil, nil).challenge()
			l.Inject("facilitator cuts before", math.MaxInt)
			g = l.call(t, nil, meta(asked, l.payer.sign(t, asked, 0, nil)))
			g.asksNothing()
			require.False(t, g.receipt().Success, "%s %s", g.Result, g.Data)
			if c.dialect == dialectError {
				require.EqualValues(t, -32603, g.Code)
			}
		})
	}
}

// A payment is read wherever a client puts it, whatever was asked; two that differ are none.
func TestWhereAPaymentIsFound(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	sign := func() json.RawMessage { return l.payer.sign(t, c, 0, nil) }
	b64 := base64.StdEncoding.EncodeToString
	for name, put := range map[string]func(p json.RawMessage) map[string]any{
		"an object": func(p json.RawMessage) map[string]any { return map[string]any{"x402/payment": p} },
		"base64":    func(p json.RawMessage) map[string]any { return map[string]any{"x402/payment": b64(p)} },
		"base64, url-safe, unpadded": func(p json.RawMessage) map[string]any {
			return map[string]any{"x402/payment": base64.RawURLEncoding.EncodeToString(p)}
		},
		"JSON text": func(p json.RawMessage) map[string]any {
			return map[string]any{"x402/payment": string(p)}
		},
		"the key with a dot": func(p json.RawMessage) map[string]any {
			return map[string]any{"x402.payment": b64(p)}
		},
		"the key with a dot, object": func(p json.RawMessage) map[string]any {
			return map[string]any{"x402.payment": p}
		},
		"both, the same": func(p json.RawMessage) map[string]any {
			return map[string]any{"x402/payment": p, "x402.payment": b64(p)}
		},
		"beside other members": func(p json.RawMessage) map[string]any {
			return map[string]any{"x402/payment": p, "traceparent": "00", "progressToken": 7}
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, product, l.call(t, nil, put(sign())).text, name)
		})
	}
	sold := len(l.Settlements())
	for name, bad := range map[string]any{"null": nil, "a number": 7, "a list": []any{1}, "true": true,
		"another object": map[string]any{"foo": "bar"}} {
		t.Run(name, func(t *testing.T) {
			g := l.call(t, nil, map[string]any{"x402/payment": bad})
			if bad == nil {
				g.challenge()
				return
			}
			require.EqualValues(t, -32602, g.Code, name)
		})
	}
	g := l.call(t, nil, map[string]any{"x402/payment": sign(), "x402.payment": b64(sign())})
	require.EqualValues(t, -32602, g.Code, "two payments")
	require.Len(t, l.Settlements(), sold)
}

// Over streamable HTTP, where Cloudflare's clients may show the payment in a header of the request;
// both protocol generations; and the newer one's payment extension, for clients that support it.
func TestOverHTTP(t *testing.T) {
	l := newLab(t, nil)
	server := l.server()
	handler := testworld.Streamable(t, server,
		&mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: true})
	web := httptest.NewServer(handler)
	defer web.Close()
	call := func(meta string, header map[string]string) string {
		t.Helper()
		all := map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
			"Mcp-Name": "search"}
		for name, value := range header {
			all[name] = value
		}
		status, answer := post(t, web.URL,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{},"_meta":{`+
				`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"b","version":"1"},`+meta+`}}}`, all)
		require.Equal(t, 200, status, answer)
		return answer
	}
	const knows = `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"org.x402/payment":{}}}`
	const plain = `"io.modelcontextprotocol/clientCapabilities":{}`
	read := func(answer string) got {
		t.Helper()
		m := must.JSON[struct{ Result json.RawMessage }]([]byte(answer))(t)
		return got{t: t, MCPMessage: wire.MCPMessage{Result: m.Result}}
	}
	g := read(call(knows, nil))
	require.Equal(t, x402.Dialect("mcp-extension"), g.challenge().Dialect)
	require.NotContains(t, string(g.Result), "isError")
	c := read(call(plain, nil)).challenge()
	require.Equal(t, x402.Dialect("mcp"), c.Dialect)

	asked := g.challenge()
	paid := call(knows+`,"x402/payment":`+string(l.payer.sign(t, asked, 0, nil)), nil)
	require.Contains(t, paid, product)
	require.True(t, read(paid).receipt().Success)
	paid = call(plain,
		map[string]string{"PAYMENT-SIGNATURE": base64.StdEncoding.EncodeToString(l.payer.sign(t, c, 0, nil))})
	require.Contains(t, paid, product)
	require.Len(t, l.Settlements(), 2)

	// The same two steps with the SDK's client, which opens a session of the older era when it is
	// told to.
	stateful := httptest.NewServer(testworld.Streamable(t, server, nil))
	defer stateful.Close()
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			client, err := mcp.NewClient(&mcp.Implementation{Name: "buyer"}, nil).Connect(t.Context(),
				&mcp.StreamableClientTransport{Endpoint: stateful.URL},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
			require.NoError(t, err, version)
			l.client = client
			require.Equal(t, product, l.buy(t, nil).text, version)
			client.Close()
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

// One tool alone, on a server that is not protected; and on one that is, it is not paid twice.
func TestOneTool(t *testing.T) {
	l := newLab(t, nil)
	server := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
	tool := l.paywall.Tool("search", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult,
		error) {
		return l.tool(ctx, r)
	})
	server.AddTool(&mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"}}, tool)
	l.client, _ = connect(t, server, nil)
	require.Equal(t, product, l.buy(t, nil).text)
	require.Len(t, l.Settlements(), 1)
	l.paywall.Protect(server)
	require.Equal(t, product, l.buy(t, nil).text)
	require.Len(t, l.Settlements(), 2)
	require.Panics(t, func() { l.paywall.Tool("serach", tool) }, "nobody would be charged")
}

// Paths of a web server, in both versions.
func TestHTTPHandler(t *testing.T) {
	for _, version := range []int{2, 1} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			l := newLab(t, func(l *lab, o *Options) {
				o.Version = version
				o.Tools = append(o.Tools, Tool{Name: "report", Description: "Climate",
					Accepts: []Option{{Network: "84532", PayTo: l.PayToEVM, Amount: "2000", Asset: "usdc"}}})
			})
			status := 200
			web := httptest.NewServer(l.paywall.HTTP("report",
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/plain")
					w.Header().Set("Cache-Control", "public")
					w.WriteHeader(status)
					_, _ = w.Write([]byte(product + FromContext(r.Context()).Price))
				})))
			get := func(header map[string]string) (*http.Response, string) {
				t.Helper()
				request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+
					"/report?year=2026", nil))(t)
				for name, value := range header {
					request.Header.Set(name, value)
				}
				response := must.Get(http.DefaultClient.Do(request))(t)
				defer response.Body.Close()
				var body strings.Builder
				must.Get(io.Copy(&body, response.Body))(t)
				return response, body.String()
			}
			ask := func() *wire.Challenge {
				t.Helper()
				response, body := get(nil)
				c := must.Get(wire.ReadChallenge(response.StatusCode, response.Header, []byte(body)))(t)
				require.Equal(t, version, c.Version)
				require.Equal(t, web.URL+"/report?year=2026", c.Resource.URL)
				return c
			}
			pay := func(c *wire.Challenge, payload json.RawMessage) map[string]string {
				a := wire.Attach(c.Dialect, payload)
				return map[string]string{a.Header: a.Value}
			}
			c := ask()
			shown := pay(c, l.payer.sign(t, c, 0, nil))
			response, body := get(shown)
			require.Equal(t, 200, response.StatusCode, body)
			require.Equal(t, product+"$0.002", body)
			require.Equal(t, "private", response.Header.Get("Cache-Control"))
			receipt := must.Get(wire.ReadSettlement(response.Header))(t)
			require.Equal(t, l.Settlements()[0].Transaction, receipt.Transaction)
			response, body = get(shown)
			require.Equal(t, 409, response.StatusCode, body)
			require.NotContains(t, body, "accepts")
			response, _ = get(map[string]string{"PAYMENT-SIGNATURE": "%%%"})
			require.Equal(t, 400, response.StatusCode)

			status = 500
			response, _ = get(pay(c, l.payer.sign(t, c, 0, nil)))
			require.Equal(t, 500, response.StatusCode)
			require.Empty(t, response.Header.Get("PAYMENT-RESPONSE"))
			require.Len(t, l.Settlements(), 1, "a failure is not settled")
			status = 200
			l.Inject("facilitator down", math.MaxInt)
			response, body = get(pay(c, l.payer.sign(t, c, 0, nil)))
			require.Equal(t, 502, response.StatusCode, body)
			require.NotContains(t, body, product)
			web.Close()
			http.DefaultClient.CloseIdleConnections()
		})
	}
}
