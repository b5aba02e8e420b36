package paywall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/paywall/book"
)

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
