package paywall

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402/wire"
)

// Many servers greet on stdout before they speak MCP. That is no reason to go.
func TestUpstreamGreetingIsSkipped(t *testing.T) {
	_, f := newProxy(t)
	own := must.Get(os.Executable())(t)
	f.Command = []string{"/bin/sh", "-c", `echo "starting server"; echo "[1, 2]"; exec "$0"`, own}
	require.NoError(t, f.Open(t.Context()))
	client := stdioClient(t, f, nil)
	result := must.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"}))(t)
	require.False(t, result.IsError)
}

// A line of the client that is no message is answered, and the session goes on.
func TestMalformedClientLineDoesNotEndTheSession(t *testing.T) {
	for name, line := range map[string]string{
		"not JSON":       "hello",
		"an empty batch": `[]`,
		"half a message": `{"jsonrpc":"2.0","id":1`,
		"two at once":    `{"jsonrpc":"2.0","id":8,"method":"ping"}{"jsonrpc":"2.0","id":9,"method":"ping"}`,
		"too long":       `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 16<<20) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, f := newProxy(t)
			require.NoError(t, f.Open(t.Context()))
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- f.Stdio(ctx, inR, outW) }()
			t.Cleanup(func() {
				stop()
				require.NoError(t, <-done)
			})
			lines := bufio.NewScanner(outR)
			lines.Buffer(nil, 1<<20)
			answer := func(request string) string {
				go func() { _, _ = io.WriteString(inW, request+"\n") }()
				require.True(t, lines.Scan(), "the session ended")
				return lines.Text()
			}
			answer(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
				`"clientInfo":{"name":"t","version":"1"}}}`)
			require.Contains(t, answer(line), `"error"`)
			require.Contains(t, answer(`{"jsonrpc":"2.0","id":2,"method":"ping"}`), `"result"`)
		})
	}
}

// An answer of the upstream server without an end fails its own call, after a bound.
func TestUpstreamAnswerIsBounded(t *testing.T) {
	for name, kind := range map[string]string{"one message": "application/json",
		"a stream": "text/event-stream"} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			server := behind()
			handler := testworld.Streamable(t, server, nil)
			at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(body), `"hello"`) {
					r.Body = io.NopCloser(strings.NewReader(string(body)))
					handler.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", kind)
				part := []byte(strings.Repeat("data: "+strings.Repeat("x", 8<<10)+"\n\n", 16))
				for sent.Load() < 4*wire.MaxMCPMessage {
					n, err := w.Write(part)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
			}))
			t.Cleanup(at.Close)
			_, f := newProxy(t)
			f.Command, f.URL = nil, at.URL
			require.NoError(t, f.Open(t.Context()))
			client := stdioClient(t, f, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			require.Error(t, must.Err(client.CallTool(ctx, &mcp.CallToolParams{Name: "hello"})))
			require.NoError(t, ctx.Err())
			require.Less(t, sent.Load(), int64(3*wire.MaxMCPMessage), "it was read on without a bound")
			must.Get(client.ListTools(t.Context(), nil))(t)
		})
	}
}

// A proxy that the environment names does not see what is sold. net/http reads the environment
// once, hence the process of its own.
func TestUpstreamIgnoresProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv("PAYWALL_TEST_PROXIED") != "" {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, f := newProxy(t)
		f.Command, f.URL = nil, "http://upstream.example/mcp"
		require.Error(t, f.Open(ctx))
		return
	}
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	own := must.Get(os.Executable())(t)
	child := exec.CommandContext(t.Context(), own, "-test.run=^TestUpstreamIgnoresProxyOfTheEnvironment$")
	child.Env = append(os.Environ(), "PAYWALL_TEST_PROXIED=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+
		proxy.URL)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Zero(t, asked.Load(), "the proxy was asked")
}

// The owner's proxy leads to a server elsewhere, and not to one on this machine.
func TestUpstreamIsReachedThroughTheOwnersProxy(t *testing.T) {
	at := serverBehind(t, nil)
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		assert.Equal(t, "http://upstream.example/mcp", r.RequestURI)
		to := must.Get(url.Parse(at))(t)
		(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.URL.Path = ""
		}}).ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	for address, isProxied := range map[string]bool{"http://upstream.example/mcp": true, at: false} {
		asked.Store(0)
		_, f := newProxy(t)
		f.Command, f.URL, f.Through = nil, address, seller.Through(nil, proxy.URL)
		require.NoError(t, f.Open(t.Context()))
		client := stdioClient(t, f, nil)
		result := must.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"}))(t)
		require.False(t, result.IsError)
		require.Equal(t, isProxied, asked.Load() > 0)
	}
}

// A null among what upstream reads is left out.
func TestUpstreamReadsNull(t *testing.T) {
	server := behind()
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "note://{name}", Name: "note"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			one := &mcp.ResourceContents{URI: "note://a", Text: "hi"}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{one}}, nil
		})
	handler := testworld.Streamable(t, server, &mcp.StreamableHTTPOptions{JSONResponse: true})
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(answer.Code)
		_, _ = io.WriteString(w, strings.Replace(answer.Body.String(), `"contents":[`, `"contents":[null,`, 1))
	}))
	t.Cleanup(at.Close)
	_, f := newProxy(t)
	f.Command, f.URL = nil, at.URL
	require.NoError(t, f.Open(t.Context()))
	client := stdioClient(t, f, nil)
	read := must.Get(client.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "note://a"}))(t)
	require.Equal(t, "hi", read.Contents[0].Text)
}

// A failure of one buyer's upstream call costs no other buyer's sale, although they share the session.
func TestBrokenCallCostsNoOtherBuyersSale(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"refused": func(w http.ResponseWriter) {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		},
		"no JSON": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{")
		},
		"a page": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>")
		},
		"no answer": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := behind()
			handler := testworld.Streamable(t, server, nil)
			arrived, over := make(chan struct{}), make(chan struct{})
			at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				switch {
				case bytes.Contains(body, []byte(`"hello"`)):
					answer(w)
					return
				case bytes.Contains(body, []byte(`"search"`)):
					close(arrived)
					<-over
				}
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(at.Close)
			l := newLab(t, nil)
			f := &Proxy{Paywall: l.paywall, URL: at.URL, Log: slog.New(slog.DiscardHandler)}
			require.NoError(t, f.Open(t.Context()))
			l.client = stdioClient(t, f, nil)
			c := l.call(t, nil, nil).challenge()
			go func() {
				defer close(over)
				<-arrived
				_, err := l.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"})
				assert.Error(t, err)
			}()
			require.Equal(t, product, l.call(t, nil, meta(c, l.payer.sign(t, c, 0, nil))).text)
			require.Len(t, l.Settlements(), 1)
		})
	}
}
