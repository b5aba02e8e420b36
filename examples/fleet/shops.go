package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// shop is a paywall, and where its buyers find it.
type shop struct {
	machine
	listen string // the paywall's own host:port
	buyers string // where buyers find it: through somebody who looks on
}

// upstream is the MCP server whose tools both paywalls sell. It knows nothing of money.
type upstream struct {
	url  string
	runs atomic.Int64
}

func (s *story) opensUpstream(ctx context.Context) error {
	s.behind = &upstream{}
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	for _, name := range []string{"forecast", "report"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				text := fmt.Sprintf("%s %d: sunny", name, s.behind.runs.Add(1))
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
			})
	}
	at, err := s.listens(ctx, "127.0.0.1:0", mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server }, nil))
	s.behind.url = "http://" + at + "/mcp"
	return err
}

// listens serves at an address until the end.
func (s *story) listens(ctx context.Context, at string, handler http.Handler) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	s.atEnd(server.Close)
	return listener.Addr().String(), nil
}

// onlooker stands between buyers and a paywall, and keeps the payments that it sees.
type onlooker struct {
	mu   sync.Mutex
	seen []json.RawMessage
}

func (o *onlooker) look(body []byte) {
	var said struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	if json.Unmarshal(body, &said) != nil || said.Params.Meta["x402/payment"] == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, said.Params.Meta["x402/payment"])
}

func (o *onlooker) payments() []json.RawMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]json.RawMessage{}, o.seen...)
}

// places finds where the paywalls will be, which the rules name before there are any.
func (s *story) places(ctx context.Context) (err error) {
	for _, name := range []string{"shop-a", "shop-b"} {
		p := &shop{machine: machine{name: name, team: "shops", home: s.at(name)}}
		p.listen, err = freePort(ctx)
		if err != nil {
			return err
		}
		to := &url.URL{Scheme: "http", Host: p.listen}
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
			FlushInterval: -1}
		p.buyers, err = s.listens(ctx, "127.0.0.1:0", http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				s.looksOn.look(body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				proxy.ServeHTTP(w, r)
			}))
		if err != nil {
			return err
		}
		s.shops = append(s.shops, p)
	}
	return nil
}

// opens starts a paywall. It has no keystore: it is paid, and cannot spend.
func (s *story) opens(ctx context.Context, p *shop) error {
	if err := s.joins(p.home, p.name, p.team, ""); err != nil {
		return err
	}
	port := map[string]string{"shop-a": "4041", "shop-b": "4042"}[p.name]
	text, err := file(p.name+".toml", "127.0.0.1:"+port, p.listen, "http://127.0.0.1:8080/mcp", s.behind.url)
	if err != nil {
		return err
	}
	config := s.at(p.name + ".toml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	paywall, err := s.serve(p.name, s.wallet(ctx, p.home, []string{"LOG_LEVEL=info"},
		"paywall", "--config", config, "--metrics", "127.0.0.1:0"))
	if err == nil {
		p.metrics, err = paywall.says(ctx, `at=http://([0-9.:]+)/metrics`)
	}
	if err == nil {
		_, err = paywall.says(ctx, `(url=http://[0-9.:]+/mcp)`)
	}
	return err
}

// shown shows a payment at a paywall, as anybody can who has seen it, and gives what it says.
func (p *shop) shown(ctx context.Context, payment json.RawMessage) (said string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.listen+"/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"forecast","arguments":{},"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":`+
			`{"name":"thief","version":"1"},"io.modelcontextprotocol/clientCapabilities":{},`+
			`"x402/payment":`+string(payment)+`}}}`))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{"Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/call", "Mcp-Name": "forecast"} {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
