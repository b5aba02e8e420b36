package seller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

const anOption = `{"x402Version":2,"accepts":[{"scheme":"exact","network":"eip155:84532","amount":"1000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","maxTimeoutSeconds":60, "extra" : {"note":"<&>"}}]}`

type official struct {
	*mcp.Server
	paid  atomic.Int32
	asked atomic.Value  // what a question to the client came to
	heard chan struct{} // what the tool "slow" waits for
}

func newOfficial() *official {
	o := &official{heard: make(chan struct{}, 3),
		Server: mcp.NewServer(&mcp.Implementation{Name: "official", Version: "1"}, nil)}
	schema := json.RawMessage(`{"type":"object"}`)
	o.AddTool(&mcp.Tool{Name: "paid", InputSchema: schema}, o.sell)
	o.AddTool(&mcp.Tool{Name: "slow", InputSchema: schema},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := range 3 {
				_ = r.Session.NotifyProgress(ctx,
					&mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(),
						Progress: float64(i + 1), Total: 3, Message: "working"})
				select {
				case <-o.heard:
				case <-ctx.Done():
				}
			}
			return &mcp.CallToolResult{}, nil
		})
	o.AddTool(&mcp.Tool{Name: "nosy", InputSchema: schema},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "passphrase?",
				RequestedSchema: schema})
			_, roots := r.Session.ListRoots(ctx, nil) //nolint:staticcheck // servers of today ask it
			o.asked.Store(fmt.Sprint(err, roots))
			return &mcp.CallToolResult{}, nil
		})
	return o
}

// sell is the tool "paid".
func (o *official) sell(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r.Params.Meta["x402/payment"] == nil {
		return &mcp.CallToolResult{IsError: true, StructuredContent: json.RawMessage(anOption),
			Content: []mcp.Content{&mcp.TextContent{Text: anOption}}}, nil
	}
	o.paid.Add(1)
	return &mcp.CallToolResult{Meta: mcp.Meta{"x402/payment-response": map[string]any{"success": true,
		"transaction": "0xabc", "network": "eip155:84532"}},
		Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
}

func overAll(t *testing.T, o *official) map[string]string {
	mux := http.NewServeMux()
	mux.Handle("/mcp", testworld.Streamable(t, o.Server, nil))
	mux.Handle("/json", testworld.Streamable(t, o.Server, &mcp.StreamableHTTPOptions{JSONResponse: true,
		Stateless: true}))
	mux.Handle("/old", mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return o.Server }, nil))
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return map[string]string{"streamable": s.URL + "/mcp", "json": s.URL + "/json", "old": s.URL + "/old",
		"moved": s.URL + "/moved"}
}

func reach(t *testing.T, o Options, urls ...string) *Client {
	for _, u := range urls {
		r := must.Get(http.NewRequest(http.MethodGet, u, nil))(t)
		o.Loopback = append(o.Loopback, r.URL.Host)
	}
	m := New(o)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	return m
}

func TestMCPOverEveryWire(t *testing.T) {
	o := newOfficial()
	var before int32
	for name, url := range overAll(t, o) {
		t.Run(name, func(t *testing.T) {
			m := reach(t, Options{}, url)
			q := Request{Method: CallTool, URL: Target(url, "paid"), Body: []byte(`{"n":9007199254740993}`)}
			a := must.Get(m.Ask(t.Context(), q))(t)
			require.Equal(t, 402, a.Status)
			require.Equal(t, x402.Dialect("mcp"), a.Challenge.Dialect)

			before = o.paid.Load()
			a = must.Get(m.Present(t.Context(), q, wire.Attach(a.Challenge.Dialect,
				json.RawMessage(`{"x402Version":2}`))))(t)
			require.Equal(t, []any{200, ContentType, "0xabc"}, []any{a.Status, a.ContentType,
				a.Settlement.Transaction})
			require.Contains(t, string(a.Content), `9007199254740993`)
			require.Equal(t, before+1, o.paid.Load(), "once")

			if name != "json" { // which cannot say anything before its answer
				var last Progress
				must.Get(m.Ask(within(t, time.Minute), Request{Method: CallTool, URL: Target(url, "slow"),
					Progress: func(p Progress) {
						last = p
						o.heard <- struct{}{}
					}}))(t)
				require.Equal(t, Progress{3, 3, "working"}, last)
			}
			must.Get(m.Ask(t.Context(), toolCall(Target(url, "nosy"))))(t)
			require.NotContains(t, o.asked.Load(), "<nil>", "both questions are declined")

			_, err := m.Ask(t.Context(), toolCall(Target(url, "nope")))
			require.Equal(t, x402.ToolNotFound, code(err), "%v", err)
		})
	}
}

// A tool whose schema marks an argument by x-mcp-header (SEP-2243) is called with that header: once the
// server has refused a call without, which costs nothing, then at once. A payment leaves with it, and once.
func TestMCPParamHeaders(t *testing.T) {
	o := newOfficial()
	mark := func(header string) {
		schema := `{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"` + header + `"}}}`
		o.AddTool(&mcp.Tool{Name: "paid", InputSchema: json.RawMessage(schema)}, o.sell)
	}
	mark("City")
	server := testworld.Streamable(t, o.Server, &mcp.StreamableHTTPOptions{Stateless: true})
	var mu sync.Mutex
	var seen []string
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		method := r.Header.Get("Mcp-Method")
		if strings.HasPrefix(method, "tools/") {
			mu.Lock()
			seen = append(seen, strings.TrimSpace(method+" "+r.Header.Get("Mcp-Param-City")+
				r.Header.Get("Mcp-Param-Town")))
			mu.Unlock()
		}
		server.ServeHTTP(w, r)
	})
	m := reach(t, Options{}, at.URL)
	asks := Request{Method: CallTool, URL: Target(at.URL, "paid"), Body: []byte(`{"city":"Zürich"}`)}
	const call, withHeader = "tools/call", "tools/call =?base64?WsO8cmljaA==?="
	expect := func(requests ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, requests, seen)
		seen = nil
	}
	ask := func() {
		t.Helper()
		a := must.Get(m.Ask(t.Context(), asks))(t)
		require.Equal(t, 402, a.Status)
	}
	ask()
	expect(call, "tools/list", withHeader)
	ask()
	expect(withHeader)

	p := must.Get(m.endpointNamed(t.Context(), at.URL))(t)
	p.drop(p.live())
	m.release(p)
	a := must.Get(m.Present(t.Context(), asks, aPayment))(t)
	require.Equal(t, 200, a.Status, "%s", a.Content)
	expect("tools/list", withHeader)
	require.EqualValues(t, 1, o.paid.Load())

	mark("Town")
	ask()
	must.Get(m.Present(t.Context(), asks, aPayment))(t)
	require.EqualValues(t, 2, o.paid.Load())
}

func TestMCPListChangesAreNoticed(t *testing.T) {
	o := newOfficial()
	for name, url := range overAll(t, o) {
		if name == "json" || name == "moved" { // stateless; and the other one again
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := reach(t, Options{}, url)
			changed := must.Get(m.Changes(url))(t)
			list := must.Get(m.Tools(t.Context(), url))(t)
			o.AddTool(&mcp.Tool{Name: "new-" + name, InputSchema: json.RawMessage(`{"type":"object"}`)},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{}, nil
				})
			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatal("nobody noticed")
			}
			require.Greater(t, len(must.Get(m.Tools(t.Context(), url))(t)), len(list))
		})
	}
}

// A server at a URL has that origin and no other: neither a redirect nor old SSE's endpoint leads
// elsewhere.
func TestMCPStaysAtItsOrigin(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: endpoint\ndata: %s/take\n\n", other.URL)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	})
	m := reach(t, Options{}, s.URL, other.URL)
	for path, want := range map[string]x402.Code{"/away": x402.RedirectRefused,
		"/old": x402.ServerUnavailable} {
		_, err := m.Ask(within(t, time.Minute), toolCall(s.URL+path+"#paid"))
		require.Equal(t, want, code(err), "%s: %v", path, err)
	}
	require.Zero(t, elsewhere.Load())
}

// One that answers its payment with a redirect gets it once, and the redirect is the answer.
func TestAnMCPPaymentFollowsNoRedirect(t *testing.T) {
	o := newOfficial()
	handler := testworld.Streamable(t, o.Server, nil)
	var paid atomic.Int32
	s := serveBut(t, handler, `"x402/payment"`, func(w http.ResponseWriter, r *http.Request) {
		paid.Add(1)
		http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
	})
	m := reach(t, Options{}, s.URL)
	a := must.Get(m.Present(t.Context(), toolCall(s.URL+"/mcp#paid"), aPayment))(t)
	require.Equal(t, http.StatusTemporaryRedirect, a.Status)
	require.EqualValues(t, 1, paid.Load())
	list, err := m.Tools(t.Context(), s.URL+"/mcp")
	require.NoError(t, err, "the session is none the worse")
	require.NotEmpty(t, list)
}

// Huge lists, names that are none, and names twice.
func TestMCPLists(t *testing.T) {
	var page atomic.Int32
	tools := func(names ...string) string {
		var list []string
		for _, n := range names {
			text, _ := json.Marshal(n)
			list = append(list, `{"name":`+string(text)+`,"inputSchema":{"type":"object"}}`)
		}
		return strings.Join(list, ",")
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &q)
		w.Header().Set("Content-Type", "application/json")
		switch answer := func(result string) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
		}; {
		case q.Method == "initialize":
			answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case q.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case q.Method != "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, q.ID)
		case r.URL.Path == "/names":
			answer(`{"tools":[` + tools("good", "good", "a b", "x__y", "good.ish", "rtl\u202e",
				strings.Repeat("n", 129), "") + `]}`)
		case r.URL.Path == "/endless":
			answer(fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, tools("t"), page.Add(1)))
		default:
			var many []string
			for i := range listLimits.Items + 1 {
				many = append(many, fmt.Sprint("t", i))
			}
			answer(`{"tools":[` + tools(many...) + `]}`)
		}
	})
	m := reach(t, Options{}, s.URL)
	list := must.Get(m.Tools(t.Context(), s.URL+"/names"))(t)
	var names []string
	for _, tool := range list {
		names = append(names, tool.Name)
	}
	require.Equal(t, []string{"good", "x__y", "good.ish"}, names)
	for _, path := range []string{"/endless", "/many"} {
		require.Equal(t, x402.ResponseTooLarge, code(must.Err(m.Tools(t.Context(), s.URL+path))), path)
	}
	require.EqualValues(t, listLimits.Pages, page.Load())
}

// No more than so many servers at a time; the one that was unused longest makes room.
func TestMCPPlacesAreBounded(t *testing.T) {
	o := newOfficial()
	handler := testworld.Streamable(t, o.Server, nil)
	s := serve(t, handler.ServeHTTP)
	t.Cleanup(s.CloseClientConnections)
	m := reach(t, Options{}, s.URL)
	for i := range maxEndpoints + 4 {
		must.Get(m.Tools(t.Context(), fmt.Sprint(s.URL, "/", i)))(t)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Len(t, m.endpoints, maxEndpoints)
	require.Nil(t, m.endpoints[place{url: s.URL + "/0"}])
}

// A result is an object; anything else is none, whatever was paid.
func TestAResultIsAnObject(t *testing.T) {
	for result, failed := range map[string]bool{
		`{}`: false, `{"content":[]}`: false, `{"isError":false}`: false, `{"IsError":true}`: false,
		`{"isError": true}`: true, `{"resultType":"input_required"}`: true, `null`: true, `[1]`: true,
		`"done"`: true, ``: true,
	} {
		t.Run(result, func(t *testing.T) {
			require.Equal(t, failed, isFailure(json.RawMessage(result)), result)
		})
	}
}

// What a request without payment came to says what to do next, and that nothing was paid.
func TestWhatToDoNextAfterAnMCPServersError(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "evil words", code) }
	}
	// a server whose calls come to what a test says
	calls := func(call func(w http.ResponseWriter, r *http.Request, q question)) http.HandlerFunc {
		server := &plain{get: noStream, call: call}
		return func(w http.ResponseWriter, r *http.Request) {
			if q, ok := peek(r); ok && q.Method == "tools/list" {
				says(w, q, `"result":{"tools":[{"name":"get_weather","inputSchema":{"type":"object"}},`+
					`{"name":"get_whether","inputSchema":{"type":"object"}},`+
					`{"name":"buy","inputSchema":{"type":"object"}}]}`)
				return
			}
			server.ServeHTTP(w, r)
		}
	}
	refuses := func(code int) http.HandlerFunc {
		return calls(func(w http.ResponseWriter, _ *http.Request, q question) {
			says(w, q, fmt.Sprintf(`"error":{"code":%d,"message":"evil words"}`, code))
		})
	}
	const down = x402.ServerUnavailable
	noJSON := calls(func(w http.ResponseWriter, _ *http.Request, _ question) {
		w.Header().Set("Content-Type", "application/json")
	})
	away := calls(func(w http.ResponseWriter, r *http.Request, _ question) { status(503)(w, r) })
	for name, c := range map[string]struct {
		server http.HandlerFunc
		tool   string
		code   x402.Code
		do     x402.Step
		says   string
	}{
		"no such tool": {refuses(-32602), "getweather", x402.ToolNotFound, x402.Change,
			`names the 3 that it has, the closest are "get_weather", "get_whether"`},
		"nothing like it": {refuses(-32602), "zzzzzzzz", x402.ToolNotFound, x402.Change,
			"names the 3 that it has"},
		"wrong arguments": {refuses(-32602), "buy", x402.InvalidArgument, x402.Change, "shows the schema"},
		"its own failure": {refuses(-32603), "buy", x402.ToolExecutionFailed, x402.Change,
			"which pays only if it is asked to"},
		"an answer that is none": {noJSON, "buy", x402.SessionTerminated, x402.Repeat, "nothing was paid"},
		"a login":                {status(401), "buy", down, x402.GiveUp, "a login"},
		"another page":           {status(404), "buy", down, x402.Change, "MCP endpoint"},
		"away":                   {status(503), "buy", down, x402.Repeat, "another server"},
		"away, for a call":       {away, "buy", down, x402.Repeat, "another server"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.server)
			m := reach(t, Options{}, s.URL)
			_, err := m.Ask(within(t, time.Minute), toolCall(s.URL+"#"+c.tool))
			require.Equal(t, c.code, code(err), "%v", err)
			e := x402.AsError(err)
			next := e.NextStep()
			require.Equal(t, c.do, next.Do)
			text := strings.Join([]string{e.Message, e.Hint, next.Why, next.Say}, "; ")
			require.Contains(t, text, c.says)
			require.Contains(t, text, "nothing was paid")
			require.NotContains(t, text, "evil")
		})
	}
}

// A program that does not start is its owner's to look at; an address that nobody answers at is not.
func TestWhatToDoNextWithoutAnMCPServer(t *testing.T) {
	m := reach(t, Options{Servers: map[string]Server{"gone": {Command: []string{"/nowhere/at/all"}}}},
		"http://127.0.0.1:1")
	_, err := m.Tools(within(t, time.Minute), "mcp://gone")
	require.Equal(t, x402.ServerUnavailable, code(err))
	next := x402.AsError(err).NextStep()
	require.Equal(t, []any{x402.AskPerson, "x402-wallet doctor"}, []any{next.Do, next.Command})
	require.Contains(t, next.Say, "[servers.gone] in config.toml")
	_, err = m.Tools(within(t, time.Minute), "http://127.0.0.1:1/mcp")
	require.Equal(t, x402.ServerUnavailable, code(err))
	require.Equal(t, x402.Repeat, x402.AsError(err).NextStep().Do)
}

func TestClosest(t *testing.T) {
	names := []string{"get_weather", "get_forecast", "weather", "Get_Weather", "buy", "search_the_web"}
	for name, want := range map[string][]string{
		"get_weathr":             {"get_weather", "Get_Weather", "weather"},
		"weather":                {"weather", "get_weather", "Get_Weather"},
		"by":                     {"buy"},
		"search":                 {"search_the_web"},
		"qqqqq":                  nil,
		strings.Repeat("x", 2e3): nil,
	} {
		got := Closest(name, names, 3)
		require.ElementsMatch(t, want, got, name)
		if len(want) > 0 {
			require.Equal(t, want[0], got[0])
		}
	}
	require.Equal(t, 3, editDistance("kitten", "sitting"))
	require.Equal(t, 3, editDistance("", "abc"))
}
