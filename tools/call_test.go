package tools

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// asServer makes this test binary a paid MCP server on its stdin and stdout, as the environment
// says.
const asServer = "X402_TEST_MCP_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(asServer); text != "" {
		var s paidServer
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			panic(err)
		}
		s.Exit = func() { os.Exit(7) }
		fmt.Fprintln(os.Stderr, "started")
		_ = s.serve(os.Stdin, os.Stdout)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// command is a server of this kind as config.toml would have it. env(1) stands for npx and the
// like: a command that starts another.
func command(t *testing.T, s map[string]any) seller.Server {
	self := must.Get(os.Executable())(t)
	text := must.Get(json.Marshal(s))(t)
	return seller.Server{Command: []string{"/usr/bin/env", asServer + "=" + string(text), self}}
}

// sells makes the world's wallet buy from MCP servers.
func (w *world) sells(t testing.TB, servers map[string]seller.Server, loopback ...string) *seller.Client {
	m := seller.New(seller.Options{Loopback: append(w.Loopback, loopback...), Servers: servers,
		Version: "test", Log: w.wallet.Engine.Log})
	w.wallet.Engine.Transport = m
	w.wallet.Servers = m
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// overHTTP serves a paid MCP server on loopback, and gives its URL and the entry for
// policy.loopback.
func overHTTP(t *testing.T, s *paidServer) (url, loopback string) {
	at := httptest.NewServer(s)
	t.Cleanup(at.Close)
	return at.URL + "/mcp", strings.TrimPrefix(at.URL, "http://")
}

func (w *world) funded(t testing.TB, r rules) *world {
	_, onEVM := w.keys.Addresses()
	w.Fund(onEVM, 10*sandbox.USDC)
	return w
}

// requirePaid checks one purchase by the chain's books, the wallet's answer and its ledger.
func (w *world) requirePaid(t *testing.T, r pay.Result, settlements int) {
	require.Equal(t, pay.StatusPaid, r.Status)
	require.Equal(t, "1000", r.AmountPaid.String())
	require.Equal(t, "$0.001", r.Price)
	require.Equal(t, 200, r.HTTPStatus)
	require.Equal(t, settlements, len(w.Settlements()))
	last := w.Settlements()[settlements-1]
	require.Equal(t, last.Transaction, r.TransactionSignature)
	require.EqualValues(t, toolPrice, last.Amount)
	p := must.Get(w.wallet.Store.Payment(t.Context(), r.PaymentID))(t)
	require.Equal(t, history.Settled, p.State)
	require.True(t, p.Dialect.MCP() || p.Dialect == x402.DialectV2Header || p.Dialect == x402.DialectV1Body,
		p.Dialect)
}

// Every dialect, over both wires: asked in it, paid in its own form at its own place, receipt read
// from there.
func TestEveryDialectIsPaid(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	servers := map[string]seller.Server{}
	var loopback []string
	asHTTP := map[string]*paidServer{}
	add := func(name string, s *paidServer) {
		url, entry := overHTTP(t, s)
		servers[name], loopback, asHTTP[name] = seller.Server{URL: url}, append(loopback, entry), s
	}
	for _, d := range append(stdioDialects, "error:-402", "error:-32042", "error:-32402", "error:-32803") {
		name := strings.NewReplacer(":", "", "-", "").Replace(d)
		modern := d == "extension"
		servers[name] = command(t, map[string]any{"Facilitator": w.FacilitatorURL, "PayTo": w.PayToEVM,
			"Dialect": d, "Modern": modern})
		add(name+"http", &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: d,
			Modern: modern})
	}
	add("stream", &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "result",
		Stream: true, Sessions: true})
	add("http402", &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "http"})
	add("http402v1", &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "http-v1"})
	w.sells(t, servers, loopback...)
	for name := range servers {
		t.Run(name, func(t *testing.T) {
			paid := len(w.Settlements()) + 1
			r, err := w.wallet.Pay(t.Context(), CallIn{Server: name, Tool: "paid",
				Arguments: json.RawMessage(`{"q":"<b>","n":9007199254740993}`), MaxAmount: "1000"})
			require.NoError(t, err, "%v", x402.AsError(err).Err)
			w.requirePaid(t, r, paid)
			require.JSONEq(t, `{"n":9007199254740993,"q":"<b>"}`, r.Content)
			require.Equal(t, "application/json", r.ContentType)
			if s := asHTTP[name]; s != nil {
				require.Len(t, s.shown(), 1, "a payment leaves once")
			}
			w.wallet.Engine.Delivered(t.Context(), r.Status, r.PaymentID)
		})
	}
}

func TestResourcesPromptsAndEntryArePaidFor(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	entry := &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "http", Entry: true}
	at, loopback := overHTTP(t, entry)
	m := w.sells(t, map[string]seller.Server{
		"shop": command(t, map[string]any{"Facilitator": w.FacilitatorURL, "PayTo": w.PayToEVM,
			"Dialect": "result"}),
		"required": command(t, map[string]any{"Facilitator": w.FacilitatorURL, "PayTo": w.PayToEVM,
			"Dialect": "required"}),
		"door": command(t, map[string]any{"Facilitator": w.FacilitatorURL, "PayTo": w.PayToEVM,
			"Dialect": "error", "Entry": true}),
	}, loopback)
	agent, n := w.serve(t), 0
	for _, server := range []string{"shop", "required"} {
		endpoint := must.Get(m.Endpoint(server))(t)
		for _, c := range []struct{ argument, method, name, args, content string }{
			{"resource", seller.ReadResource, "paid://resource", "", `"text":"bought"`},
			{"prompt", seller.GetPrompt, "paid", `{"q":"x"}`, `"messages"`},
			{"tool", seller.CallTool, "paid", `{"q":"x"}`, `"q":"x"`},
		} {
			in := map[string]any{"server": server, c.argument: c.name, "maxAmount": "$0.001"}
			if c.args != "" {
				in["arguments"] = json.RawMessage(c.args)
			}
			r := agent.ok(callName, in)
			require.Equal(t, []any{"paid", "1000", "$0.001"}, []any{r["status"], r["amountPaid"], r["price"]})
			require.Contains(t, r["content"], c.content)
			n++
			require.Len(t, w.Settlements(), n)
			row := agent.ok("x402_history", map[string]any{"limit": 1})["transactions"].([]any)[0]
			require.Equal(t, []any{c.method, seller.Target(endpoint, c.name)},
				[]any{row.(map[string]any)["method"], row.(map[string]any)["url"]})
		}
	}
	for _, server := range []string{"door", at} { // initialize, and then the tool, out of one maxAmount
		_, err := w.wallet.Pay(t.Context(), CallIn{Server: server, Tool: "paid", MaxAmount: "$0.0015"})
		require.Equal(t, x402.AmountExceedsMax, x402.AsError(err).Code, "%v", err)
		require.Equal(t, n+1, len(w.Settlements()), "the way in was paid for, and is open")
		r, err := w.wallet.Pay(t.Context(), CallIn{Server: server, Tool: "paid", MaxAmount: "$0.0015"})
		require.NoError(t, err)
		n += 2
		w.requirePaid(t, r, n)
	}
}

func TestWhatACallGives(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.sells(t, map[string]seller.Server{"shop": command(t, map[string]any{"Facilitator": w.FacilitatorURL,
		"PayTo": w.PayToEVM, "Dialect": "result", "Trick": "greets"})})
	c := w.serve(t)

	free := c.ok(callName, map[string]any{"server": "shop", "tool": "free",
		"arguments": map[string]any{"q": "a"}})
	require.Equal(t, []any{"free", `{"q":"a"}`, false}, []any{free["status"], free["content"],
		free["paymentRequired"]})

	rich := c.ok(callName, map[string]any{"server": "shop", "tool": "rich"})
	require.Equal(t, "paid", rich["status"])
	require.Contains(t, rich["content"], `"structuredContent":{"rows":[1,2]}`)
	require.Contains(t, rich["content"], `"type":"image"`)

	require.Equal(t, "TOOL_NOT_FOUND",
		string(c.refused(callName, map[string]any{"server": "shop", "tool": "nope"}).Error))
	require.Equal(t, "AMOUNT_EXCEEDS_MAX",
		string(c.refused(callName, map[string]any{"server": "shop", "tool": "paid", "maxAmount": "0"}).Error))

	broken := c.refused(callName, map[string]any{"server": "shop", "tool": "broken"})
	require.Equal(t, "TOOL_EXECUTION_FAILED", string(broken.Error))
	require.Equal(t, "1000", broken.Spent, "held until the chain says that it has expired")
	require.True(t, broken.SafeToRetry)
	require.Equal(t, "the thermometer is broken", broken.Content, "what the tool said is the agent's to read")
	require.Regexp(t, "^untrusted ", broken.ContentBegin)
	require.Regexp(t, "^end ", broken.ContentEnd)

	lax := c.ok(callName, map[string]any{"server": "shop", "tool": "lax"})
	require.Equal(t, []any{"paid_not_served", "the thermometer is broken", 500.0},
		[]any{lax["status"], lax["content"], lax["httpStatus"]})

	one := c.ok("x402_history", map[string]any{"paymentId": rich["paymentId"]})
	require.Equal(t, rich["content"], one["content"])
	row := one["transactions"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"tools/call", "mcp://shop#rich"}, []any{row["method"], row["url"]})

	list := c.ok("x402_list_tools", map[string]any{"server": "shop"})
	prices := map[string]any{}
	for _, line := range list["tools"].([]any) {
		line := line.(map[string]any)
		prices[line["name"].(string)] = line["price"]
		require.Equal(t, "the tool "+line["name"].(string), line["description"])
		require.Contains(t, line["inputSchema"], "properties")
	}
	require.Equal(t, map[string]any{"free": "$0", "paid": "$0.001", "rich": "$0.001", "broken": untoldPrice,
		"lax": "$0.001"}, prices)
	require.Contains(t, w.log.String(), `stderr="\"started\""`)
}

// Every call answered and delivered is a purchase of its own; one whose answer was lost is not made
// again.
func TestACallIsDeliveredLikeAPayment(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.sells(t, map[string]seller.Server{"shop": command(t, map[string]any{"Facilitator": w.FacilitatorURL,
		"PayTo": w.PayToEVM, "Dialect": "result"})})
	c := w.serve(t)
	first := c.ok(callName, map[string]any{"server": "shop", "tool": "paid",
		"arguments": json.RawMessage(`{"a":1,"b":2}`), "idempotencyKey": "k"})
	again := c.ok(callName, map[string]any{"server": "shop", "tool": "paid",
		"arguments": json.RawMessage(`{"b":2,"a":1}`), "idempotencyKey": "k"})
	require.Equal(t, []any{"replayed", first["paymentId"], first["content"]},
		[]any{again["status"], again["paymentId"], again["content"]})

	require.NoError(t, c.in.Close())
	require.NoError(t, <-c.done)
	c.done <- nil
	p := must.Get(w.wallet.Store.Payment(t.Context(), first["paymentId"].(string)))(t)
	require.True(t, p.Delivered, "its answer was written")

	// nobody says that it was delivered …
	lost := must.Get(w.wallet.Pay(t.Context(), CallIn{Server: "shop", Tool: "paid"}))(t)
	require.NoError(t, w.wallet.Store.ClearWaiter(t.Context(), lost.PaymentID))
	found := must.Get(w.wallet.Pay(t.Context(), CallIn{Server: "shop", Tool: "paid"}))(t)
	require.Equal(t, []any{pay.StatusReplayed, lost.PaymentID}, []any{found.Status, found.PaymentID})
	require.Equal(t, 2, len(w.Settlements()))
}

// A tool, a resource and a prompt of one name are three purchases, each with its own idempotency key.
func TestWhatIsBoughtIsNamedByItsKind(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.sells(t, map[string]seller.Server{"shop": command(t, map[string]any{"Facilitator": w.FacilitatorURL,
		"PayTo": w.PayToEVM, "Dialect": "result", "Trick": "one name"})})
	agent := w.serve(t)
	for i, kind := range []string{"tool", "resource", "prompt"} {
		first := agent.ok(callName, map[string]any{"server": "shop", kind: "paid", "idempotencyKey": kind})
		again := agent.ok(callName, map[string]any{"server": "shop", kind: "paid", "idempotencyKey": kind})
		require.Equal(t, []any{"paid", "replayed", first["paymentId"]},
			[]any{first["status"], again["status"], again["paymentId"]})
		require.Len(t, w.Settlements(), i+1)
	}
	mixed := agent.refused(callName, map[string]any{"server": "shop", "prompt": "paid",
		"idempotencyKey": "resource"})
	require.EqualValues(t, x402.InvalidArgument, mixed.Error)
	require.Len(t, w.Settlements(), 3)
}

func TestOneOfToolResourceAndPrompt(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	shop := &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "result"}
	at, loopback := overHTTP(t, shop)
	w.sells(t, map[string]seller.Server{"shop": {URL: at}}, loopback)
	agent := w.serve(t)
	for _, c := range []struct{ given, message string }{
		{`{}`, "tool, resource and prompt are missing"},
		{`{"tool":"","resource":"","prompt":""}`, "tool, resource and prompt are missing"},
		{`{"arguments":{"q":"x"}}`, "tool, resource and prompt are missing"},
		{`{"tool":"paid","resource":"paid://resource"}`, "tool and resource are given"},
		{`{"tool":"paid","prompt":"paid"}`, "tool and prompt are given"},
		{`{"resource":"paid://resource","prompt":"paid"}`, "resource and prompt are given"},
		{`{"tool":"paid","resource":"paid://resource","prompt":"paid"}`,
			"tool and resource and prompt are given"},
		{`{"resource":"paid://resource","arguments":{"q":"x"}}`, "a resource takes no arguments"},
		{`{"prompt":"paid","arguments":{"q":1}}`, "the arguments of a prompt are texts"},
		{`{"prompt":"paid","arguments":{"q":{"a":"b"}}}`, "the arguments of a prompt are texts"},
		{`{"prompt":"paid","arguments":{"q":["b"]}}`, "the arguments of a prompt are texts"},
		{`{"resource":"paid://\u0000resource"}`, "no control characters"},
	} {
		in := must.JSON[map[string]any]([]byte(c.given))(t)
		in["server"] = "shop"
		said := agent.refused(callName, in)
		require.EqualValues(t, x402.InvalidArgument, said.Error, c.given)
		require.Contains(t, said.Message, c.message, c.given)
	}
	require.Empty(t, shop.asked(), "nothing was asked of the server")
	require.Zero(t, w.Signatures())

	said := agent.refused(callName, map[string]any{"server": "shop", "resource": "paid://other"})
	require.EqualValues(t, x402.InvalidArgument, said.Error)
	require.Contains(t, said.Message, "has no resource")
}

// What has a price is listed, whatever it is; what a server says without one is not, nor are endless lists.
func TestPricedResourcesAndPromptsAreListed(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	shop, loopback := overHTTP(t, &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM,
		Dialect: "result", Trick: "lists wares"})
	w.sells(t, map[string]seller.Server{"shop": {URL: shop}}, loopback)
	list := w.serve(t).ok("x402_list_tools", map[string]any{"server": "shop"})["tools"].([]any)
	var found []any
	for _, line := range list {
		line := line.(map[string]any)
		if line["type"] == nil {
			require.Empty(t, found, "tools come first")
			continue
		}
		if len(found) < 3 {
			found = append(found, line)
		}
	}
	require.Len(t, list, 5+maxWares)
	require.Equal(t, []any{
		map[string]any{"type": "resource", "name": "paid://resource", "description": "a resource",
			"price": "$0.001"},
		map[string]any{"type": "resource", "name": "paid://{of}", "description": "", "price": "$0.001"},
		map[string]any{"type": "prompt", "name": "paid", "description": "", "price": "$0.001",
			"inputSchema": map[string]any{"type": "object", "required": []any{"q"},
				"properties": map[string]any{
					"q": map[string]any{"type": "string", "description": "what"}}}},
	}, found)
}
