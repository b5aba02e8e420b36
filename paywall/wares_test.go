package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/internal/steps"
	"x402-wallet/paywall/book"
	"x402-wallet/x402/wire"
)

// library is a server that takes any spelling of a URI, and has a tool and a prompt that hand out resources.
func library() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, &mcp.ServerOptions{
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"paid"}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	contents := func(uri, text string) *mcp.ResourceContents {
		return &mcp.ResourceContents{URI: uri, Text: text}
	}
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		uri := strings.ToLower(r.Params.URI)
		for range 3 {
			if plain, err := url.PathUnescape(uri); err == nil {
				uri = plain
			}
		}
		uri, _, _ = strings.Cut(uri, "#")
		uri, _, _ = strings.Cut(uri, "?")
		name := path.Clean("/" + strings.ReplaceAll(strings.TrimPrefix(uri, "lib:"), `\`, "/"))
		switch name {
		case "/broken":
			return nil, errors.New("it is lent")
		case "/alias":
			return &mcp.ReadResourceResult{
				Contents: []*mcp.ResourceContents{contents("lib://book", product)}}, nil
		case "/free":
			return &mcp.ReadResourceResult{
				Contents: []*mcp.ResourceContents{contents("lib://free", "free")}}, nil
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents("lib:/"+name, product)},
			Cacheable: mcp.Cacheable{CacheScope: "public", TTLMs: 1000}}, nil
	}
	for _, name := range []string{"book", "free", "alias", "broken"} {
		server.AddResource(&mcp.Resource{URI: "lib://" + name, Name: name}, read)
	}
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "{+any}", Name: "any"}, read)
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "lib://shelf/{name}", Name: "shelf"}, read)
	embedded := &mcp.EmbeddedResource{Resource: contents("LIB://book/", product)}
	server.AddTool(&mcp.Tool{Name: "lend", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{embedded}}, nil
		})
	for _, name := range []string{"essay", "note", "quote"} {
		server.AddPrompt(&mcp.Prompt{Name: name}, func(_ context.Context, r *mcp.GetPromptRequest) (
			*mcp.GetPromptResult, error) {
			m := &mcp.PromptMessage{Role: "user", Content: &mcp.TextContent{Text: product}}
			switch name {
			case "note":
				m.Content = &mcp.TextContent{Text: "free"}
			case "quote":
				m.Content = embedded
			}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{m}}, nil
		})
	}
	return server
}

// sellsWares sells of the library a book, a shelf, what is broken, and an essay.
func sellsWares(l *lab, o *Options) {
	price := []Option{{Network: sandbox.EVM, PayTo: l.PayToEVM, Price: "0.001"}}
	o.Tools = []Tool{{Kind: OfResource, Name: "lib://book", Accepts: price},
		{Kind: OfResource, Name: "lib://shelf/*", Accepts: price},
		{Kind: OfResource, Name: "lib://broken", Accepts: price},
		{Kind: OfPrompt, Name: "essay", Accepts: price}}
}

func (l *lab) library(t *testing.T) *mcp.ClientSession {
	server := library()
	l.paywall.Protect(server)
	client, _ := connect(t, server, nil)
	return client
}

// heard is an answer or an error as a buyer reads it.
func heard(t *testing.T, answered any, err error) got {
	g := got{t: t}
	var own *jsonrpc.Error
	if errors.As(err, &own) {
		g.Code, g.Data, g.text = own.Code, own.Data, own.Message
		return g
	}
	require.NoError(t, err)
	g.Result = must.Get(json.Marshal(answered))(t)
	return g
}

func readBy(t *testing.T, client *mcp.ClientSession, uri string, meta map[string]any) got {
	t.Helper()
	answered, err := mcp.CallCustomMethod[*mcp.ReadResourceParams, *mcp.ReadResourceResult](t.Context(),
		client, "resources/read", &mcp.ReadResourceParams{Meta: meta, URI: uri})
	return heard(t, answered, err)
}

func promptBy(t *testing.T, client *mcp.ClientSession, name string, meta map[string]any) got {
	t.Helper()
	answered, err := client.GetPrompt(t.Context(), &mcp.GetPromptParams{Meta: meta, Name: name,
		Arguments: map[string]string{"q": "x"}})
	return heard(t, answered, err)
}

func TestResourcesAndPromptsAreSold(t *testing.T) {
	for _, dialect := range []string{"result", "error", "x402-mcp", "cloudflare"} {
		t.Run(dialect, func(t *testing.T) {
			labels := map[string]bool{}
			l := newLab(t, func(l *lab, o *Options) {
				sellsWares(l, o)
				o.Dialect, o.Observe = dialect, func(r steps.Report) { labels[r.Tool] = true }
			})
			client := l.library(t)
			for i, ask := range []func(meta map[string]any) got{
				func(meta map[string]any) got { return readBy(t, client, "lib://book", meta) },
				func(meta map[string]any) got { return readBy(t, client, "lib://shelf/7", meta) },
				func(meta map[string]any) got { return promptBy(t, client, "essay", meta) },
			} {
				c := ask(nil).challenge()
				require.Len(t, l.Settlements(), i)
				with := meta(c, l.payer.sign(t, c, 0, nil))
				bought := ask(with)
				require.Contains(t, string(bought.Result), product)
				require.NotContains(t, string(bought.Result), `"public"`, "no gateway gives it to others")
				require.NotNil(t, bought.receipt())
				require.Len(t, l.Settlements(), i+1)
				again := ask(with)
				again.asksNothing()
				require.NotContains(t, string(again.Result), product, "one payment, one run")
			}
			require.Len(t, l.Settlements(), 3)
			var sold []string
			for _, s := range l.sales(t) {
				require.Equal(t, book.SaleSettled, s.State)
				sold = append(sold, s.Resource)
			}
			require.ElementsMatch(t, []string{"mcp://resource/lib:%2F%2Fbook",
				"mcp://resource/lib:%2F%2Fshelf%2F7", "mcp://prompt/essay"}, sold)
			require.Equal(t, map[string]bool{"resource lib://book": true, "resource lib://shelf/*": true,
				"prompt essay": true}, labels, "figures name what the owner prices")
			require.Contains(t, string(readBy(t, client, "lib://free", nil).Result), `"free"`)
			require.Contains(t, string(promptBy(t, client, "note", nil).Result), `"free"`)
		})
	}
}

func TestAWareThatFailsIsNotPaid(t *testing.T) {
	l := newLab(t, sellsWares)
	client := l.library(t)
	c := readBy(t, client, "lib://broken", nil).challenge()
	g := readBy(t, client, "lib://broken", meta(c, l.payer.sign(t, c, 0, nil)))
	require.Empty(t, g.Result)
	l.nothingMoved(t, g)

	l = newLab(t, sellsWares)
	client = l.library(t)
	c = promptBy(t, client, "essay", nil).challenge()
	payment := l.payer.sign(t, c, 0, nil)
	l.payer.spendAll(t, c) // what is signed cannot be settled any more
	g = promptBy(t, client, "essay", meta(c, payment))
	require.NotContains(t, string(g.Result)+string(g.Data), product)

	l = newLab(t, sellsWares) // what was paid for one thing buys no other
	client = l.library(t)
	c = readBy(t, client, "lib://book", nil).challenge()
	with := meta(c, l.payer.sign(t, c, 0, nil))
	require.Contains(t, string(readBy(t, client, "lib://book", with).Result), product)
	for _, other := range []got{promptBy(t, client, "essay", with),
		readBy(t, client, "lib://shelf/1", with)} {
		require.NotContains(t, string(other.Result), product)
	}
	require.Len(t, l.Settlements(), 1)
}

// A server that takes any spelling gives none of them away; nor does another method.
func TestPricedContentIsNotFree(t *testing.T) {
	l := newLab(t, sellsWares)
	client := l.library(t)
	for _, uri := range []string{"lib://book", "LIB://book", "lib://BOOK", "lib://book/", "lib://book//",
		"lib:///book", "lib:book", "lib:/book", "lib://./book", "lib://x/../book", "lib://%62ook",
		"lib://%2562ook", "lib://%252562ook", "lib://book?", "lib://book?x=1", "lib://book#x",
		"lib://book%23x",
		"lib://book%3Fx", `lib:\\book`, "lib://shelf/../book", "lib://shelf/1", "LIB://Shelf/1", "lib://shelf//1",
		"lib://%73helf/1", "lib://shelf%2F1", "lib://x/../shelf/1", "lib://shelf", "lib://shelf/1?x",
		"lib://alias", " lib://book", "lib://book ", "lib://bo\tok"} {
		g := readBy(t, client, uri, nil)
		require.NotZero(t, g.Code, "%s: %s", uri, g.Result)
		require.NotContains(t, string(g.Data)+g.text, product, uri)
	}
	for name, g := range map[string]got{"embedded by a tool": callBy(t, client, "lend", nil),
		"embedded by a prompt": promptBy(t, client, "quote", nil)} {
		require.NotContains(t, string(g.Result)+string(g.Data)+g.text, product, name)
	}
	require.NoError(t, client.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "lib://book"}))
	completed, err := client.Complete(t.Context(), &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: "lib://shelf/{name}"},
		Argument: mcp.CompleteParamsArgument{Name: "name", Value: "1"}})
	require.NotContains(t, string(heard(t, completed, err).Result), product)
	require.Empty(t, l.Settlements())

	c := readBy(t, client, "lib://book", nil).challenge()
	g := readBy(t, client, "lib://shelf/../book", meta(c, l.payer.sign(t, c, 0, nil)))
	require.Contains(t, string(g.Result), product, "it is the book, at its price")
}

func TestListsShowPrices(t *testing.T) {
	l := newLab(t, sellsWares)
	client := l.library(t)
	prices := map[string]any{}
	for _, r := range must.Get(client.ListResources(t.Context(), nil))(t).Resources {
		prices[r.URI] = r.Meta["agents-x402/priceUSD"]
	}
	for _, r := range must.Get(client.ListResourceTemplates(t.Context(), nil))(t).ResourceTemplates {
		prices[r.URITemplate] = r.Meta["agents-x402/priceUSD"]
	}
	for _, p := range must.Get(client.ListPrompts(t.Context(), nil))(t).Prompts {
		prices[p.Name] = p.Meta["agents-x402/priceUSD"]
	}
	require.Equal(t, map[string]any{"lib://book": 0.001, "lib://free": nil, "lib://alias": nil,
		"lib://broken": 0.001, "{+any}": nil, "lib://shelf/{name}": 0.001, "essay": 0.001, "note": nil,
		"quote": nil}, prices)
	require.Equal(t, map[string]string{"resource lib://book": "$0.001", "resource lib://shelf/*": "$0.001",
		"resource lib://broken": "$0.001", "prompt essay": "$0.001"}, l.paywall.Prices())
}

// A misspelt name would give away what was meant.
func TestProxyRefusesPriceOfNothing(t *testing.T) {
	for _, c := range []struct{ kind, name, fault string }{
		{OfResource, "whether://today", "has no resource whether://today; it has weather://today"},
		{OfResource, "whether://*", "has no resource whether://*"},
		{OfPrompt, "briefs", "has no prompt briefs"},
		{OfPrompt, "search", "has no prompt search"}, {OfResource, "brief", "has no resource brief"},
		{OfResource, "weather://today", ""}, {OfResource, "weather://Lisbon", ""}, {OfPrompt, "brief", ""},
		{OfResource, "weather://*", ""}, {OfResource, "weather://to*", ""}, {OfEntry, "", ""},
	} {
		l, f := newProxy(t, "hello")
		f.Paywall = must.Get(New(Options{Facilitators: newFacilitators(l.Sandbox), Store: testBook,
			Tools: []Tool{{Kind: c.kind, Name: c.name, Accepts: []Option{{Network: sandbox.EVM,
				PayTo: l.PayToEVM, Price: "0.001"}}}}}))(t)
		err := f.Open(t.Context())
		if c.fault == "" {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorContains(t, err, c.fault)
		}
		require.NoError(t, f.Close(t.Context()))
	}
}

func TestPricesOfWaresAreChecked(t *testing.T) {
	l := newLab(t, nil)
	price := []Option{{Network: sandbox.EVM, PayTo: l.PayToEVM, Price: "0.001"}}
	for message, list := range map[string][]Tool{
		"has two prices":             {{Kind: OfEntry, Accepts: price}, {Kind: OfEntry, Accepts: price}},
		"a resource without a name":  {{Kind: OfResource, Accepts: price}},
		"a entry without a name":     {{Kind: OfEntry, Name: "x", Accepts: price}},
		"is of no kind that is sold": {{Kind: "sampling", Name: "x", Accepts: price}},
		"only a tool is declared": {{Kind: OfPrompt, Name: "x", Accepts: price,
			Discovery: &Discovery{}}},
		"at least one way to pay":      {{Kind: OfPrompt, Name: "x"}},
		"a URI has at most 2048 bytes": {{Kind: OfResource, Name: strings.Repeat("x", 3000), Accepts: price}},
	} {
		_, err := New(Options{Tools: list, Store: testBook, Facilitators: newFacilitators(l.Sandbox)})
		require.ErrorContains(t, err, message)
	}
}

// sellsEntry is a lab, and a paywall that sells sessions.
func sellsEntry(t *testing.T) (*lab, *Paywall) {
	l := newLab(t, nil)
	return l, must.Get(New(Options{Facilitators: newFacilitators(l.Sandbox), Store: testBook,
		Tools: []Tool{{Kind: OfEntry, Accepts: []Option{{Network: sandbox.EVM, PayTo: l.PayToEVM,
			Price: "0.001"}}}}}))(t)
}

// stranger sends raw messages to a server, as a client of no library.
type stranger struct {
	t  *testing.T
	at string
	id string // of its session
}

func (g *stranger) send(method, params string, header map[string]string) (
	status int, body string, h http.Header) {
	g.t.Helper()
	text := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	r := must.Get(http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.at,
		strings.NewReader(text)))(g.t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if g.id != "" {
		r.Header.Set("Mcp-Session-Id", g.id)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer := must.Get(http.DefaultClient.Do(r))(g.t)
	defer answer.Body.Close()
	return answer.StatusCode, string(must.Get(io.ReadAll(answer.Body))(g.t)), answer.Header
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"g","version":"1"}}`

// Who did not pay to come in gets no answer, by whatever request; who did has a session, once.
func TestEntryOverHTTP(t *testing.T) {
	l, wall := sellsEntry(t)
	f := &Proxy{Paywall: wall, server: library()}
	wall.Protect(f.server)
	at := httptest.NewServer(f.mcpHandler())
	t.Cleanup(func() {
		at.Close()
		for session := range f.server.Sessions() {
			_ = session.Close()
		}
	})
	g := &stranger{t: t, at: at.URL}

	status, body, header := g.send("initialize", hello, nil)
	require.Equal(t, http.StatusPaymentRequired, status, body)
	require.Empty(t, header.Get("Mcp-Session-Id"))
	modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
	inMeta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"g","version":"1"}}}`
	for _, c := range []struct {
		method, params string
		header         map[string]string
	}{
		{"tools/list", "{}", nil}, {"tools/call", `{"name":"lend"}`, nil},
		{"resources/read", `{"uri":"lib://book"}`, nil}, {"prompts/get", `{"name":"essay"}`, nil},
		{"server/discover", inMeta, nil}, {"tools/list", inMeta, modern}, {"tools/list", inMeta, nil},
		{"server/discover", inMeta, map[string]string{"Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": "server/discover"}},
		{"initialize", hello, modern}, {"Initialize", hello, nil},
		{"initialize", hello, map[string]string{"Mcp-Session-Id": "guessed"}},
	} {
		status, body, header := g.send(c.method, c.params, c.header)
		require.NotContains(t, body, `"result"`, "%s %v: %d", c.method, c.header, status)
		if id := header.Get("Mcp-Session-Id"); id != "" {
			inside := &stranger{t: t, at: at.URL, id: id}
			_, body, _ = inside.send("tools/list", "{}", nil)
			require.NotContains(t, body, `"result"`, c.method)
		}
	}
	require.Empty(t, l.Settlements())

	c := must.Get(wire.ReadChallenge(status, header, []byte(body)))(t)
	pays := func() map[string]string {
		with := wire.Attach(c.Dialect, l.payer.sign(t, c, 0, nil))
		return map[string]string{with.Header: with.Value}
	}
	payment := pays()
	status, body, header = g.send("initialize", hello, payment)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"serverInfo"`)
	require.Len(t, l.Settlements(), 1)
	inside := &stranger{t: t, at: at.URL, id: header.Get("Mcp-Session-Id")}
	inside.send("notifications/initialized", "{}", nil)
	for range 2 {
		_, body, _ = inside.send("tools/list", "{}", nil)
		require.Contains(t, body, `"lend"`)
	}
	require.Len(t, l.Settlements(), 1, "once for a session")

	status, body, header = g.send("initialize", hello, payment)
	require.NotContains(t, body, `"serverInfo"`, "one payment is one session")
	require.Empty(t, header.Get("Mcp-Session-Id"))
	require.NotEqual(t, http.StatusOK, status)

	// an initialize that the server refuses costs nothing
	status, body, _ = g.send("initialize", `{"protocolVersion":7}`, pays())
	require.GreaterOrEqual(t, status, http.StatusBadRequest, body)
	require.Len(t, l.Settlements(), 1)
}

// Without HTTP the way in is asked for by the JSON-RPC error 402.
func TestEntryWithoutHTTP(t *testing.T) {
	l, wall := sellsEntry(t)
	server := library()
	wall.Protect(server)
	near, far := mcp.NewInMemoryTransports()
	there := must.Get(server.Connect(context.Background(), near, nil))(t)
	stream := must.Get(far.Connect(t.Context()))(t)
	t.Cleanup(func() { stream.Close(); there.Wait() })
	n := 0
	ask := func(method, params string) got {
		n++
		require.NoError(t, stream.Write(t.Context(), &jsonrpc.Request{
			ID: must.Get(jsonrpc.MakeID(float64(n)))(t), Method: method, Params: json.RawMessage(params)}))
		answer := must.Get(stream.Read(t.Context()))(t).(*jsonrpc.Response)
		if answer.Error != nil {
			return heard(t, nil, answer.Error)
		}
		return got{t: t, MCPMessage: wire.MCPMessage{Result: answer.Result}}
	}
	c := ask("initialize", hello).challenge()
	require.Empty(t, ask("tools/list", "{}").Result)
	require.Empty(t, ask("server/discover", "{}").Result)
	require.Empty(t, ask("resources/subscribe", `{"uri":"lib://book"}`).Result)
	with := string(must.Get(json.Marshal(meta(c, l.payer.sign(t, c, 0, nil))))(t))
	in := ask("initialize", strings.Replace(hello, "{", `{"_meta":`+with+",", 1))
	require.Contains(t, string(in.Result), "serverInfo")
	require.NotNil(t, in.receipt())
	require.Len(t, l.Settlements(), 1)
	require.NoError(t, stream.Write(t.Context(), &jsonrpc.Request{Method: "notifications/initialized",
		Params: json.RawMessage("{}")}))
	require.Contains(t, string(ask("tools/list", "{}").Result), "lend")
	require.Len(t, l.Settlements(), 1)
}

// A server that answers with nothing where something should be is no reason to fall.
func TestHolesInAnswers(t *testing.T) {
	l := newLab(t, sellsWares)
	for _, given := range []mcp.Result{&mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{nil}},
		&mcp.GetPromptResult{Messages: []*mcp.PromptMessage{nil, {}}},
		&mcp.CallToolResult{Content: []mcp.Content{nil, &mcp.EmbeddedResource{}}}} {
		require.Empty(t, l.paywall.leaked(given, nil))
	}
	for _, list := range []mcp.Result{&mcp.ListResourcesResult{Resources: []*mcp.Resource{nil}},
		&mcp.ListResourceTemplatesResult{ResourceTemplates: []*mcp.ResourceTemplate{nil}},
		&mcp.ListPromptsResult{Prompts: []*mcp.Prompt{nil}}} {
		_, isList := l.paywall.withWarePrices(list)
		require.True(t, isList)
	}
}
