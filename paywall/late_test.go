package paywall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/paywall/book"
)

// named is a buyer's name for its payment.
var named = map[string]json.RawMessage{
	"payment-identifier": json.RawMessage(`{"info":{"id":"pay_0123456789abcdef"}}`),
}

// A client that comes for a lost answer after the payment expired gets it, and is not asked to pay
// again; a payment that expired unused buys nothing.
func TestALostAnswerAfterTheExpiry(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	used, nameless, unused := l.payer.sign(t, c, 0, named), l.payer.sign(t, c, 0, nil),
		l.payer.sign(t, c, 0, named)
	require.Equal(t, product, l.call(t, nil, meta(c, used)).text)
	require.Equal(t, product, l.call(t, nil, meta(c, nameless)).text)
	l.paywall.now = func() time.Time { return time.Now().Add(10 * time.Minute) }
	require.Equal(t, product, l.call(t, nil, meta(c, used)).text)
	g := l.call(t, nil, meta(c, nameless))
	require.EqualValues(t, -32602, g.Code, "%s", g.Result)
	g.asksNothing()
	require.Contains(t, l.call(t, nil, meta(c, unused)).challenge().Error, "it has expired")
	require.EqualValues(t, 2, l.runs.Load())
	require.Len(t, l.Settlements(), 2)
}

// forgetful is a sale store whose process dies when a sale is settled.
type forgetful struct {
	SaleStore
	dies bool
}

func (f *forgetful) MoveSale(ctx context.Context, sale book.Sale) error {
	if f.dies && sale.State != book.SaleSettling {
		return errors.New("the process died")
	}
	return f.SaleStore.MoveSale(ctx, sale)
}

// A sale whose process died during the settlement is resolved on the chain when its buyer asks for the
// answer.
func TestASaleThatWasLeft(t *testing.T) {
	sales := &forgetful{SaleStore: testBook, dies: true}
	l := newLab(t, func(l *lab, o *Options) {
		asking(l, o)
		o.Store = sales
	})
	c := l.call(t, nil, nil).challenge()
	shown := meta(c, l.payer.sign(t, c, 0, named))
	l.call(t, nil, shown)
	require.Equal(t, book.SaleSettling, l.sales(t)[0].State)
	sales.dies = false
	g := l.call(t, nil, shown)
	require.Contains(t, g.text, "is being used by another call", "perhaps it is")
	l.paywall.abandonedAfter = 0
	require.Equal(t, product, l.call(t, nil, shown).text)
	require.Equal(t, book.SaleSettled, l.sales(t)[0].State)
	require.EqualValues(t, 1, l.runs.Load())
	require.Len(t, l.Settlements(), 1)
}

// A request without a payment is answered with a challenge before its body is read: strangers fill no
// memory.
func TestNobodysBody(t *testing.T) {
	l := newLab(t, nil)
	web := httptest.NewServer(l.paywall.HTTP("search", http.NotFoundHandler()))
	defer web.Close()
	stranger := must.Get(net.Dial("tcp", web.Listener.Addr().String()))(t)
	defer stranger.Close()
	require.NoError(t, stranger.SetDeadline(time.Now().Add(time.Minute)))
	go func() { // less than it says
		_, _ = io.WriteString(stranger, "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 8388608\r\n\r\n"+
			strings.Repeat("x", 1<<20))
	}()
	said := make([]byte, 12)
	must.Get(io.ReadFull(stranger, said))(t)
	require.Equal(t, "HTTP/1.1 402", string(said))
}

// A client that sends its request one byte at a time is disconnected.
func TestASlowClient(t *testing.T) {
	_, f := newProxy(t)
	require.NoError(t, f.Open(t.Context()))
	f.bodyTime = 100 * time.Millisecond
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- f.HTTP(ctx, listener) }()
	slow := must.Get(net.Dial("tcp", listener.Addr().String()))(t)
	defer slow.Close()
	require.NoError(t, slow.SetDeadline(time.Now().Add(time.Minute)))
	must.Get(io.WriteString(slow, "POST /mcp HTTP/1.1\r\nHost: "+listener.Addr().String()+
		"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"))(t)
	require.Contains(t, string(must.Get(io.ReadAll(slow))(t)), "HTTP/1.1 413")
	stop()
	require.NoError(t, <-done)
}

// A buyer whose connection is cut while the tool runs pays only for an answer that they can still get:
// with a name for the payment, by which they ask again, in whatever session. In MCP of before 2026-07-28
// the call goes on all the same, as its seller finds when it has done its work.
func TestWhoHangsUpPaysForNothingLost(t *testing.T) {
	for _, version := range []string{"2025-11-25", sessionlessVersion} {
		for name, extensions := range map[string]map[string]json.RawMessage{"unnamed": nil, "named": named} {
			t.Run(version+" "+name, func(t *testing.T) { hangUp(t, version, extensions) })
		}
	}
}

func hangUp(t *testing.T, version string, extensions map[string]json.RawMessage) {
	began, end := make(chan struct{}, 1), make(chan struct{})
	server := mcp.NewServer(&mcp.Implementation{Name: "slow"}, nil)
	server.AddTool(&mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			began <- struct{}{}
			select {
			case <-end:
			case <-ctx.Done():
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: product}}}, ctx.Err()
		})
	at := httptest.NewServer(testworld.Streamable(t, server, nil))
	t.Cleanup(at.Close)
	l, f := newLab(t, nil), &Proxy{URL: at.URL}
	endpoint := overHTTP(t, l, f, Limits{})
	buyer, err := mcp.NewClient(&mcp.Implementation{Name: "buyer"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: endpoint},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	defer buyer.Close()
	c := callBy(t, buyer, "search", nil).challenge()
	payment := l.payer.sign(t, c, 0, extensions)
	header := map[string]string{"Mcp-Session-Id": buyer.ID(), callHeader: "1"}
	more := ""
	if version == sessionlessVersion {
		header = map[string]string{"Mcp-Protocol-Version": version, "Mcp-Method": "tools/call",
			"Mcp-Name": "search"}
		more = `,"io.modelcontextprotocol/protocolVersion":"` + version +
			`","io.modelcontextprotocol/clientCapabilities":{}`
	}
	ctx, cut := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		paying := &guest{t: t, endpoint: endpoint, header: header}
		answer, err := paying.roundTrip(ctx, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":77,`+
			`"method":"tools/call","params":{"name":"search","arguments":{},"_meta":{"x402/payment":%s%s}}}`,
			payment, more))
		if err == nil {
			answer.Body.Close()
		}
	}()
	<-began
	cut()
	<-over
	require.Eventually(t, func() bool { return f.unanswered.Load() == 0 }, time.Minute, time.Millisecond)
	close(end)
	state := func() book.SaleState { return l.sales(t)[0].State }
	require.Eventually(t, func() bool {
		return state() != book.SaleRunning && state() != book.SaleSettling
	}, time.Minute, 10*time.Millisecond)
	if extensions == nil || version == sessionlessVersion {
		require.Empty(t, l.Settlements(), "the answer is lost")
		require.Equal(t, book.SaleFailed, state())
		return
	}
	again := l.visits(t, endpoint, nil)
	require.Equal(t, product, callBy(t, again, "search", meta(c, payment)).text)
	require.Len(t, l.Settlements(), 1)
}

func hasty(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	said := mcp.Meta{"said": product}
	if r.Params.InputResponses == nil {
		return &mcp.CallToolResult{Meta: said,
			InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Message: "Where?"}}}, nil
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: product}}, Meta: said}, nil
}

// What a tool says beside its questions leaves when it is paid for.
func TestQuestionsCarryNothingUnpaid(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "hasty"}, nil)
	server.AddTool(&mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"}}, hasty)
	at := httptest.NewServer(testworld.Streamable(t, server, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(at.Close)
	l := newLab(t, nil)
	endpoint := overHTTP(t, l, &Proxy{URL: at.URL}, Limits{})
	p := newPerson(t, "Oslo", sessionlessVersion, &mcp.StreamableClientTransport{Endpoint: endpoint})
	c := callBy(t, p.ClientSession, "search", nil).challenge()
	payment := l.payer.sign(t, c, 0, nil)
	_, answer := post(t, endpoint, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{`+
		`"name":"search","_meta":{"x402/payment":%s,"io.modelcontextprotocol/protocolVersion":%q,`+
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`, payment, sessionlessVersion),
		map[string]string{"Mcp-Protocol-Version": sessionlessVersion, "Mcp-Method": "tools/call",
			"Mcp-Name": "search"})
	require.Contains(t, answer, "Where?")
	require.NotContains(t, answer, product)
	require.Empty(t, l.Settlements())
	require.Equal(t, product, callBy(t, p.ClientSession, "search", meta(c, payment)).text,
		"the payment is good for the call that is answered")
}

// However often a buyer says that its roots have changed, upstream is told one change at a time.
func TestRootsAreToldOneAtATime(t *testing.T) {
	server, held := behind(), make(chan struct{})
	handler := testworld.Streamable(t, server, nil)
	at := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "roots/list_changed") {
			<-held
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(at.Close)
	l := newLab(t, nil)
	endpoint := overHTTP(t, l, &Proxy{URL: at.URL}, Limits{})
	t.Cleanup(func() { close(held) })
	one := &guest{t: t, endpoint: endpoint}
	_, _, header := one.send(http.MethodPost, strings.Replace(opening, `"capabilities":{}`,
		`"capabilities":{"roots":{"listChanged":true}}`, 1))
	one.id = header.Get("Mcp-Session-Id")
	_, answer := one.call("hello")
	require.Contains(t, answer, "hi")
	before := runtime.NumGoroutine()
	for range 100 {
		status, _, _ := one.send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		require.Equal(t, http.StatusAccepted, status)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+50 }, time.Minute,
		10*time.Millisecond)
}
