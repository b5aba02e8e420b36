package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// behind is a server as others write them: it knows nothing of payments.
func behind(versions ...string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "7"},
		&mcp.ServerOptions{Instructions: "Ask about the weather.", SupportedProtocolVersions: versions,
			SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
			UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil }})
	schema := map[string]any{"type": "object"}
	add := func(name string, h mcp.ToolHandler) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: schema}, h)
	}
	text := func(s string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}, nil
	}
	look := func(ctx context.Context, r *mcp.CallToolRequest) {
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token,
				Progress: 1, Message: "looking"})
		}
	}
	add("search", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		look(ctx, r)
		saw, _ := json.Marshal(r.Params.Meta)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: product}},
			StructuredContent: json.RawMessage(`{"sky":"clear"}`),
			Meta:              mcp.Meta{"saw": string(saw)}}, nil
	})
	add("hello", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("hi " + string(r.Params.Arguments))
	})
	add("wait", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		look(ctx, r)
		<-ctx.Done()
		server.AddTool(&mcp.Tool{Name: "cancelled", InputSchema: schema}, nil)
		return nil, ctx.Err()
	})
	add("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32050, Message: "no such city",
			Data: json.RawMessage(`{"city":"?"}`)}
	})
	add("die", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	add("can", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(jsonOf(capabilitiesMeta(r.ClientCapabilities()))))
	})
	// since 2026-07-28
	add("inquire", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if said, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult); ok {
			return text(said.Content["city"].(string))
		}
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Message: "Where?"}},
		}, nil
	})
	add("ask", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if strings.Contains(string(r.Params.Arguments), "apart") {
			// as many servers do: on the session's stream
			ctx = context.Background()
		}
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Which city?"})
		if err != nil {
			return nil, err
		}
		sampled, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1,
			Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "a word"}}}})
		if err != nil {
			return nil, err
		}
		roots, err := r.Session.ListRoots(ctx, nil)
		if err != nil {
			return nil, err
		}
		_ = r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: answer.Content["city"]})
		return text(answer.Content["city"].(string) + " " + sampled.Content.(*mcp.TextContent).Text + " " +
			roots.Roots[0].URI)
	})
	add("touch", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "weather://today"})
		return text("touched")
	})
	server.AddResource(&mcp.Resource{URI: "weather://today", Name: "today"},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI,
					Text: "dry"}}},
				nil
		})
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "weather://{city}", Name: "city"},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI,
					Text: "wet"}}},
				nil
		})
	server.AddPrompt(&mcp.Prompt{Name: "brief"},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user",
				Content: &mcp.TextContent{Text: "be brief " + r.Params.Arguments["how"]}}}}, nil
		})
	return server
}

// newProxy puts a paywall in front of a program: this test binary, as the upstream server.
func newProxy(t *testing.T, tools ...string) (*lab, *Proxy) {
	t.Helper()
	l := newLab(t, func(_ *lab, o *Options) {
		for _, name := range tools {
			sold := o.Tools[0]
			sold.Name = name
			o.Tools = append(o.Tools, sold)
		}
	})
	own := must.Get(os.Executable())(t)
	f := &Proxy{Paywall: l.paywall, Command: []string{own}, Env: []string{"PAYWALL_TEST_BEHIND=1"},
		Log: slog.New(slog.DiscardHandler)}
	return l, f
}

func stdioPipes(t *testing.T, f *Proxy) (from io.ReadCloser, to io.WriteCloser) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Stdio(ctx, inR, outW) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	return outR, inW
}

func stdioClient(t *testing.T, f *Proxy, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	from, to := stdioPipes(t, f)
	client := must.Get(mcp.NewClient(&mcp.Implementation{Name: "buyer"}, o).Connect(t.Context(),
		&mcp.IOTransport{Reader: from, Writer: to}, nil))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestProxyOverStdio(t *testing.T) {
	l, f := newProxy(t)
	require.NoError(t, f.Open(t.Context()))
	progress, changed := make(chan string, 8), make(chan struct{}, 8)
	l.client = stdioClient(t, f, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- r.Params.Message + " " + r.Params.ProgressToken.(string)
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	require.Equal(t, "Ask about the weather.", l.client.InitializeResult().Instructions)
	require.Equal(t, "weather", l.client.InitializeResult().ServerInfo.Name)
	call := func(name string) (*mcp.CallToolResult, error) {
		return l.client.CallTool(t.Context(), &mcp.CallToolParams{Name: name,
			Arguments: map[string]any{"a": 1}})
	}
	var own *jsonrpc.Error

	t.Run("a purchase", func(t *testing.T) {
		c := l.call(t, nil, nil).challenge()
		shown := meta(c, l.payer.sign(t, c, 0, nil))
		shown["progressToken"] = "mine"
		shown["traceparent"] = "00-1"
		g := l.call(t, nil, shown)
		require.Equal(t, product, g.text, "%s", g.Result)
		require.True(t, g.receipt().Success)
		require.Len(t, l.Settlements(), 1)
		saw, _ := g.meta["saw"].(string)
		require.Contains(t, saw, "traceparent")
		require.NotContains(t, saw, "payment", "the server behind never sees a payment")
	})
	t.Run("what is free, and errors", func(t *testing.T) {
		require.Equal(t, `hi {"a":1}`, must.Get(call("hello"))(t).Content[0].(*mcp.TextContent).Text)
		require.ErrorAs(t, must.Err(call("fail")), &own)
		require.Equal(t, []any{int64(-32050), "no such city", `{"city":"?"}`},
			[]any{own.Code, own.Message, string(own.Data)})
		require.ErrorContains(t, must.Err(call("nothing")), "unknown tool")
	})
	t.Run("progress and cancellation", func(t *testing.T) { l.passesOn(t, progress, changed) })
	t.Run("resources and prompts", func(t *testing.T) {
		for uri, want := range map[string]string{"weather://today": "dry", "weather://paris": "wet"} {
			read, err := l.client.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			require.NoError(t, err, uri)
			require.Equal(t, want, read.Contents[0].Text, uri)
		}
		prompt := must.Get(l.client.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "brief",
			Arguments: map[string]string{"how": "and kind"}}))(t)
		require.Equal(t, "be brief and kind", prompt.Messages[0].Content.(*mcp.TextContent).Text)
	})
	t.Run("a server that dies is started again", func(t *testing.T) {
		_, err := call("die") // what it was paid for and did not do is not charged
		require.ErrorAs(t, err, &own)
		require.Eventually(t, func() bool {
			r, err := call("hello")
			return err == nil && !r.IsError
		}, time.Minute, 20*time.Millisecond)
	})
}

// passesOn: progress is passed on while a call is under way: what comes with the answer may be too late.
// The upstream server gets a cancellation (it adds a tool then), and its notification is passed on.
func (l *lab) passesOn(t *testing.T, progress chan string, changed chan struct{}) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cancelled := make(chan bool)
	go func() {
		for said := range progress {
			if said == "looking mine" {
				t.Error("it was told before it was paid")
			}
			if said == "looking now" {
				cancel()
				close(cancelled)
				return
			}
		}
	}()
	_, err := l.client.CallTool(ctx, &mcp.CallToolParams{Name: "wait",
		Meta: mcp.Meta{"progressToken": "now"}})
	require.ErrorIs(t, err, context.Canceled)
	<-cancelled
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("no change was passed on")
	}
	require.Eventually(t, func() bool {
		list := must.Get(l.client.ListTools(t.Context(), nil))(t)
		return strings.Contains(string(jsonOf(list)), `"cancelled"`)
	}, time.Minute, 10*time.Millisecond)
}

func TestProxyOverHTTP(t *testing.T) {
	l, f := newProxy(t, "die")
	require.NoError(t, f.Open(t.Context()))
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	testworld.EndSessions(t, f.server)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.HTTP(ctx, listener) }()
	endpoint := "http://" + listener.Addr().String() + "/mcp"
	for i, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			l.client = must.Get(mcp.NewClient(&mcp.Implementation{Name: "buyer"}, nil).Connect(t.Context(),
				&mcp.StreamableClientTransport{Endpoint: endpoint},
				&mcp.ClientSessionOptions{ProtocolVersion: version}))(t)
			require.Equal(t, product, l.buy(t, nil).text)
			require.Len(t, l.Settlements(), i+1)
			if i == 0 {
				l.client.Close()
			}
		})
	}
	status, body := post(t, endpoint,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
			`"io.modelcontextprotocol/clientInfo":{"name":"b","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
		map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"})
	require.Equal(t, 200, status, body)
	require.Contains(t, body, `"name":"search"`, "who knows no sessions")

	c := l.call(t, nil, nil).challenge()
	died, err := l.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "die",
		Meta: meta(c, l.payer.sign(t, c, 0, nil))})
	g := read(t, died, err)
	require.EqualValues(t, -32603, g.Code)
	g.asksNothing()
	require.Len(t, l.Settlements(), 2, "a server that died is not paid")

	status, body = post(t, endpoint, `{}`, map[string]string{"Origin": "https://evil.example",
		"Sec-Fetch-Site": "cross-site"})
	require.Equal(t, 403, status, body)
	status, body = post(t, endpoint, `{}`, map[string]string{"Host": "evil.example"})
	require.Equal(t, 421, status, body)
	l.client.Close()
	stop()
	require.NoError(t, <-done)
}

// An upstream server at a URL that was restarted does not know the session: the session is opened again, and
// no sale is lost. If it is gone, the error says so in the paywall's own words.
func TestProxyReopensUpstreamSession(t *testing.T) {
	l, f := newProxy(t)
	again := func() http.Handler { return testworld.Streamable(t, behind(), nil) }
	var now atomic.Value
	now.Store(again())
	service := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		now.Load().(http.Handler).ServeHTTP(rw, r)
	}))
	defer service.Close()
	f.Command, f.URL = nil, service.URL
	require.NoError(t, f.Open(t.Context()))
	l.client = stdioClient(t, f, nil)
	require.Equal(t, product, l.buy(t, nil).text)
	now.Store(again())
	require.Equal(t, product, l.buy(t, nil).text)
	require.Len(t, l.Settlements(), 2)
	service.CloseClientConnections()
	service.Close()
	_, err := l.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"})
	var own *jsonrpc.Error
	require.ErrorAs(t, err, &own)
	require.EqualValues(t, -32603, own.Code)
	require.Contains(t, own.Message, "the server behind the paywall")
}

// A price for a tool that is not there would give the tool away that was meant.
func TestProxyRefusesPriceWithoutTool(t *testing.T) {
	_, f := newProxy(t, "serach")
	require.ErrorContains(t, f.Open(t.Context()),
		"has no tool serach; it has ask, can, die, fail, hello, inquire, search, touch, wait")
	require.NoError(t, f.Close(t.Context()))
	_, f = newProxy(t)
	f.Command = []string{"/nonexistent/server"}
	require.EqualError(t, f.Open(t.Context()), "SERVER_UNAVAILABLE: the server behind the paywall cannot "+
		"be reached, or does not speak MCP")
	require.NoError(t, f.Close(t.Context()))
}

// What a stop finds under way is answered before the connections are cut.
func TestProxyAnswersBeforeItStops(t *testing.T) {
	l, f := newProxy(t)
	require.NoError(t, f.Open(t.Context()))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	l.paywall.options.Hooks.BeforeSettle = func(context.Context, *Sale) error { stop(); return nil }
	done := make(chan error, 1)
	go func() { done <- f.Stdio(ctx, inR, outW) }()
	var err error
	l.client = must.Get(mcp.NewClient(&mcp.Implementation{Name: "buyer"}, nil).Connect(t.Context(),
		&mcp.IOTransport{Reader: outR, Writer: inW}, nil))(t)
	g := l.buy(t, nil)
	require.Equal(t, product, g.text)
	require.NoError(t, <-done)
	_, err = l.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"})
	require.Error(t, err)
	l.client.Close()
	var own *x402.Error
	require.False(t, errors.As(err, &own))
}
