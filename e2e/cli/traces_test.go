//go:build unix

package cli

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/otlp/otlptest"
	"x402-wallet/internal/sandbox"
)

// What a host names its call by, in W3C's own example.
const (
	hostsTrace  = "0af7651916cd43dd8448eb211c80319c"
	hostsSpan   = "b7ad6b7169203331"
	traceparent = "00-" + hostsTrace + "-" + hostsSpan + "-01"
)

// party is a way to one of the sandbox's, which notes what traces it is told. It cuts what that one cuts.
type party struct {
	*httptest.Server
	behind atomic.Pointer[url.URL]
	mu     sync.Mutex
	traces []string
}

func newParty(t *testing.T, behind string) *party {
	p := &party{}
	p.leadsTo(t, behind)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(p.behind.Load()) },
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
	p.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.traces = append(p.traces, r.Header.Get("Traceparent"))
		p.mu.Unlock()
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *party) leadsTo(t *testing.T, behind string) {
	at := must.Get(url.Parse(behind))(t)
	p.behind.Store(at)
}

// told are the traces that it was told, each once; "" is none.
func (p *party) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Clone(p.traces)
	slices.Sort(list)
	return slices.Compact(list)
}

// watchedHome is a household whose calls are traced, and whose parties say what they are told.
type watchedHome struct {
	*world
	env                       []string
	seller, facilitator, node *party
	shop                      *party // leads nowhere
	collector                 *otlptest.Collector
}

func newWatchedHome(t *testing.T, more string) *watchedHome {
	h := &watchedHome{collector: otlptest.Start(t)}
	key := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(key, []byte("X-Key: sekret-of-the-collector\nX-Tenant: one\n"), 0o600))
	h.world, h.env = householdWith(t, sandbox.Options{}, func(w *world) string {
		h.seller, h.node = newParty(t, w.SellerURL), newParty(t, w.EVMNodeURL)
		h.facilitator, h.shop = newParty(t, w.FacilitatorURL), newParty(t, "")
		text := strings.NewReplacer(`"`+w.FacilitatorURL+`"`, `"`+h.facilitator.URL+`"`,
			`"`+w.EVMNodeURL+`"`, `"`+h.node.URL+`?key=sekret-of-the-node"`, "loopback = [",
			fmt.Sprintf("loopback = [%q, %q, ", h.seller.Listener.Addr(), h.shop.Listener.Addr()),
		).Replace(w.rules(sandbox.Rules{}))
		return text + fmt.Sprintf("\n[log]\nformat = \"json\"\n[traces]\nendpoint = %q\n"+
			"headers_file = %q\n%s", h.collector.URL+"?key=sekret-in-the-url", key, more)
	})
	h.env = append(h.env, passphraseFile(t), "LOG_LEVEL=info")
	return h
}

// call is a tools/call of x402_pay as a host makes it; meta is its _meta.
func (h *watchedHome) call(path, meta string) string {
	return fmt.Sprintf(`{"name":"x402_pay","arguments":{"url":%q},"_meta":%s}`, h.seller.URL+path, meta)
}

// traceOf are the spans of a call that the collector has, once its own is there.
func (h *watchedHome) traceOf(t *testing.T, id string) (root otlptest.Span,
	children map[string]otlptest.Span) {
	t.Helper()
	for n := 1; ; n++ {
		children = map[string]otlptest.Span{}
		isThere := false
		for _, s := range h.collector.Spans(t, n) {
			if hex.EncodeToString(s.TraceId) != id {
				continue
			}
			if strings.HasPrefix(s.Name, "tools/call") || strings.HasPrefix(s.Name, "x402-wallet") {
				root, isThere = s, true
			} else {
				children[s.Name] = s
			}
		}
		if isThere {
			return root, children
		}
	}
}

func attribute(s otlptest.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func lineOf(t *testing.T, log, kind string) (line map[string]any) {
	t.Helper()
	for text := range strings.Lines(log) {
		if strings.Contains(text, `"msg":"`+kind+`"`) {
			require.Nil(t, line, "a second line: %s", log)
			require.NoError(t, json.Unmarshal([]byte(text), &line), text)
		}
	}
	require.NotNil(t, line, "no line: %s", log)
	return line
}

// A payment of the command line has one line in the log and one trace, and neither tells a secret.
func TestAPaymentsLineAndItsSpans(t *testing.T) {
	t.Parallel()
	h := newWatchedHome(t, "")
	out, log := runs(t, 0, h.env, "pay", "--json", "-H", "X-Test: sekret-header", "-H",
		"Authorization: Bearer sekret-token", h.seller.URL+"/ignores-payment/weather?token=sekret-query")
	id, status := paymentOf(t, out)
	require.Equal(t, "paid", status)

	line := lineOf(t, log, "payment")
	for key, want := range map[string]any{"level": "INFO", "id": id, "state": "settled", "outcome": "paid",
		"network": sandbox.EVM, "scheme": "exact", "price": "0.001", "asset": "USDC",
		"host": h.seller.Listener.Addr().String()} {
		require.Equal(t, want, line[key], key)
	}
	require.NotContains(t, line, "code")
	took, isNumber := line["ms"].(float64)
	require.True(t, isNumber)
	byStep, _ := line["steps"].(map[string]any)
	for _, step := range []string{"gate", "ask", "funds", "facts", "reserve", "sign", "submit", "settle",
		"facilitator", "node", "send", "record"} {
		ms, isNumber := byStep[step].(float64)
		require.True(t, isNumber, "%s: %v", step, byStep)
		if step != "node" { // several at once
			require.LessOrEqual(t, ms, took, step)
		}
	}

	root, children := h.traceOf(t, line["trace"].(string))
	require.Equal(t, "x402-wallet pay", root.Name)
	require.Empty(t, root.ParentSpanId)
	require.Equal(t, id, attribute(root, "x402.payment.id"))
	for name, parent := range map[string]string{"ask": "", "hold": "", "reserve": "hold", "sign": "",
		"submit": "sign", "settle": "", "facilitator settle": "settle", "send": "", "record": ""} {
		want := root.SpanId
		if parent != "" {
			want = children[parent].SpanId
		}
		require.Contains(t, children, name)
		require.Equal(t, want, children[name].ParentSpanId, name)
	}
	settled := children["facilitator settle"]
	require.Equal(t, "sandbox", attribute(settled, "x402.peer"))
	require.Equal(t, "127.0.0.1", attribute(settled, "server.address"))

	// the facilitator and the node hear of the trace, each of its own span; the seller does not
	require.Contains(t, h.facilitator.told(), fmt.Sprintf("00-%s-%x-01", line["trace"], settled.SpanId))
	for _, told := range append(h.node.told(), h.facilitator.told()...) {
		require.Contains(t, told, "00-"+line["trace"].(string)+"-")
	}
	require.Equal(t, []string{""}, h.seller.told())

	bodies, headers := h.collector.Requests(t, 1)
	require.Equal(t, "sekret-of-the-collector", headers[0].Get("X-Key"))
	for _, text := range append(bodies, log) {
		require.NotContains(t, text, "sekret")
		require.NotContains(t, text, h.node.Listener.Addr().String(), "where the node is")
	}
}

// The trace of a call begins at the agent's host: in _meta, in both eras of MCP, or in the header of its
// request. Whom it does not want sampled is in no trace.
func TestATraceBeginsAtTheAgentsHost(t *testing.T) {
	t.Parallel()
	token := "x402w_" + strings.Repeat("a", 43)
	h := newWatchedHome(t, "\n[agents.alice]\ntoken = \""+callers.TokenHash(token)+"\"\n")
	s := startService(t, h.env, "--http", "127.0.0.1:0")
	agent := serve(t, s.env()...)
	session := s.open(token)
	over := func(session, path, meta string, header map[string]string) func() string {
		return func() string {
			const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`
			r := s.post(token, session, fmt.Sprintf(call, lastID.Add(1), h.call(path, meta)))
			for name, value := range header {
				r.Header.Set(name, value)
			}
			_, _, body := s.send(r)
			return body
		}
	}
	trace := func(n int) string { return strings.Replace(traceparent, "0af", fmt.Sprintf("%x", 0xa00+n), 1) }
	modern := `{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}`
	header := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
		"Mcp-Name": "x402_pay"}
	with := func(name, value string) map[string]string {
		all := map[string]string{name: value}
		for name, value := range header {
			all[name] = value
		}
		return all
	}
	for n, call := range []func() string{
		func() string {
			return string(agent.ask("tools/call", h.call("/weather?0", `{"traceparent":"`+trace(0)+`"}`)))
		},
		over(session, "/weather?1", `{"traceparent":"`+trace(1)+`"}`, nil),
		over(session, "/weather?2", "{}", map[string]string{"Traceparent": trace(2)}),
		over("", "/weather?3", modern+`,"traceparent":"`+trace(3)+`"}`, header),
		over("", "/weather?4", modern+"}", with("Traceparent", trace(4))),
	} {
		body := call()
		require.Contains(t, body, "paid", "%d: %s", n, body)
		root, children := h.traceOf(t, trace(n)[3:35])
		require.Equal(t, "tools/call x402_pay", root.Name)
		require.Equal(t, hostsSpan, hex.EncodeToString(root.ParentSpanId))
		require.Contains(t, children, "submit")
		if n > 0 {
			require.Equal(t, "alice", attribute(root, "x402.agent"))
		}
	}
	unasked := strings.TrimSuffix(trace(9), "1") + "0"
	require.Contains(t, over(session, "/weather?9", `{"traceparent":"`+unasked+`"}`, nil)(), "paid")
	require.Contains(t, over(session, "/weather?10", `{"traceparent":"`+trace(10)+`"}`, nil)(), "paid")
	h.traceOf(t, trace(10)[3:35])
	for _, span := range h.collector.Spans(t, 1) {
		require.NotEqual(t, unasked[3:35], hex.EncodeToString(span.TraceId))
	}
	told := strings.Join(h.node.told(), " ")
	require.Contains(t, told, unasked[:36], "whose wish is passed on")
	require.NotContains(t, told, unasked[:36]+hostsSpan, "each is told the span that asks it")
	for _, told := range h.node.told() {
		if strings.HasPrefix(told, unasked[:35]) {
			require.True(t, strings.HasSuffix(told, "-00"), told)
		}
	}
	require.Equal(t, []string{""}, h.seller.told())
}
