package paywall

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// overHTTP serves a paywall in front of behind() until the test ends.
func overHTTP(t *testing.T, l *lab, f *Proxy, limits Limits) (endpoint string) {
	t.Helper()
	over := make(chan struct{})
	if f.URL == "" && f.Command == nil {
		server := behind()
		server.AddTool(&mcp.Tool{Name: "hold", InputSchema: map[string]any{"type": "object"}},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{Message: "looking",
					ProgressToken: r.Params.GetProgressToken()})
				select {
				case <-ctx.Done():
				case <-over:
				}
				return &mcp.CallToolResult{}, nil
			})
		at := httptest.NewServer(testworld.Streamable(t, server, nil))
		t.Cleanup(at.Close)
		f.URL = at.URL
	}
	f.Paywall, f.Limits, f.Log = l.paywall, limits, slog.New(slog.DiscardHandler)
	require.NoError(t, f.Open(t.Context()))
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.HTTP(ctx, listener) }()
	testworld.EndSessions(t, f.server)
	t.Cleanup(func() { close(over); stop(); require.NoError(t, <-done) })
	return "http://" + listener.Addr().String() + "/mcp"
}

// labOverHTTP is a lab whose paywall is served with these limits.
func labOverHTTP(t *testing.T, limits Limits) (l *lab, f *Proxy, endpoint string) {
	l, f = newLab(t, nil), &Proxy{}
	return l, f, overHTTP(t, l, f, limits)
}

type guest struct {
	t            *testing.T
	endpoint, id string
	header       map[string]string
}

const opening = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"g","version":"1"}}}`

// roundTrip makes one request; its answer may still be on its way.
func (g *guest) roundTrip(ctx context.Context, method, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, g.endpoint, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range g.header {
		request.Header.Set(name, value)
	}
	if g.id != "" {
		request.Header.Set("Mcp-Session-Id", g.id)
	}
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
}

func (g *guest) send(method, body string) (status int, answer string, header http.Header) {
	g.t.Helper()
	response, err := g.roundTrip(g.t.Context(), method, body)
	require.NoError(g.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(g.t, err)
	return response.StatusCode, string(text), response.Header
}

func (g *guest) arrive() (status int) {
	g.t.Helper()
	g.id = ""
	status, answer, header := g.send(http.MethodPost, opening)
	g.id = header.Get("Mcp-Session-Id")
	require.Equal(g.t, status == http.StatusOK, g.id != "", "%s", answer)
	return status
}

func (g *guest) call(tool string) (status int, answer string) {
	g.t.Helper()
	status, answer, _ = g.send(http.MethodPost, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool))
	return status, answer
}

// A newcomer takes the place of the longest idle session that bought nothing; sessions that bought something,
// or are about to, stay.
func TestSessionsWithoutPurchaseMakeRoom(t *testing.T) {
	l, _, endpoint := labOverHTTP(t, Limits{Sessions: 8})
	l.client = l.visits(t, endpoint, nil)
	require.Equal(t, product, l.buy(t, nil).text)
	var crowd []*guest
	add := func() *guest {
		one := &guest{t: t, endpoint: endpoint}
		require.Equal(t, http.StatusOK, one.arrive())
		crowd = append(crowd, one)
		return one
	}
	asking := add()
	status, answer := asking.call("search")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, answer, "x402Version")
	for range 12 {
		add()
	}
	alive := 0
	for i, one := range crowd {
		status, _ := one.call("hello")
		if status == http.StatusOK {
			alive++
		} else {
			require.Equal(t, http.StatusNotFound, status, "%d", i)
		}
	}
	require.Equal(t, 4, alive, "half of 8")
	status, _ = asking.call("hello")
	require.Equal(t, http.StatusOK, status, "it asked for a price a moment ago")
	status, _ = crowd[1].call("hello")
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, product, l.buy(t, nil).text, "a buyer's session is not taken")
}

// Where nobody can make room the visitor hears when to come again.
func TestRefusalsSayWhenToComeAgain(t *testing.T) {
	_, _, endpoint := labOverHTTP(t, Limits{Sessions: 2})
	first := &guest{t: t, endpoint: endpoint}
	require.Equal(t, http.StatusOK, first.arrive())
	end, isRunning := hanging(t, first, 7, false) // its session does not make room
	defer end()
	require.True(t, isRunning)
	status, answer, header := (&guest{t: t, endpoint: endpoint}).send(http.MethodPost, opening)
	require.Equal(t, http.StatusServiceUnavailable, status, answer)
	require.Equal(t, "5", header.Get("Retry-After"))
	require.Contains(t, answer, `"code":-32000`)
	require.Contains(t, answer, `"retryAfter":5`)
}

// 64 KiB come before a payment, and 16 MiB after.
func TestBodiesBeforeAPayment(t *testing.T) {
	l, _, endpoint := labOverHTTP(t, Limits{})
	one := &guest{t: t, endpoint: endpoint}
	large := strings.Replace(opening, `"name":"g"`, `"name":"`+strings.Repeat("x", 64<<10)+`"`, 1)
	status, answer, _ := one.send(http.MethodPost, large)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Contains(t, answer, "at most 65536 bytes before its session has bought something")
	client := l.visits(t, endpoint, nil)
	l.client = client
	much := map[string]any{"much": strings.Repeat("x", 1<<20)}
	_, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello", Arguments: much})
	require.Error(t, err)
	require.Equal(t, product, l.buy(t, nil).text)
	given := must.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello", Arguments: much}))(t)
	require.Greater(t, len(given.Content[0].(*mcp.TextContent).Text), 1<<20)
}

// What a client says about itself is not kept completely while its session lasts.
func TestClaimsAreNotKept(t *testing.T) {
	many := map[string]any{}
	for i := range 5000 {
		many[fmt.Sprint(i)] = []any{}
	}
	kept := trimClientInfo(&mcp.InitializeParams{ProtocolVersion: "2025-11-25",
		Meta: mcp.Meta{"much": many}, ClientInfo: &mcp.Implementation{Name: strings.Repeat("n", 60<<10)},
		Capabilities: &mcp.ClientCapabilities{Experimental: many, Extensions: map[string]any{"x": many},
			Elicitation: &mcp.ElicitationCapabilities{}}})
	require.Less(t, len(must.Get(json.Marshal(kept))(t)), 1<<10)
	require.NotNil(t, kept.Capabilities.Elicitation)
	kept = trimClientInfo(&mcp.InitializeParams{Capabilities: &mcp.ClientCapabilities{
		Extensions: map[string]any{"org.x402/payment": map[string]any{}}}})
	require.Contains(t, kept.Capabilities.Extensions, "org.x402/payment")
}

// Visitors are told apart by their address where a web server in front writes it, IPv6 by its first
// 64 bits; where nobody does, they are not.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		peer, forwarded string
		behind          bool
		want            string
	}{
		{"127.0.0.1:5", "192.0.2.7", false, ""},
		{"127.0.0.1:5", "192.0.2.7", true, "192.0.2.7"},
		{"[::1]:5", "198.51.100.1, 192.0.2.7", true, "192.0.2.7"},
		{"127.0.0.1:5", "2001:db8:1:2:3:4:5:6", true, "2001:db8:1:2::/64"},
		{"127.0.0.1:5", "2001:db8:1:2:ffff::", true, "2001:db8:1:2::/64"},
		{"127.0.0.1:5", "::ffff:192.0.2.7", true, "192.0.2.7"},
		{"127.0.0.1:5", "unknown", true, ""},
		{"127.0.0.1:5", "", true, ""},
		{"192.0.2.1:5", "203.0.113.9", true, "192.0.2.1"},
		{"[fe80::1%eth0]:5", "", false, "fe80::/64"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		r.RemoteAddr = c.peer
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		l := newLimiter(Limits{BehindProxy: c.behind}, time.Second)
		require.Equal(t, c.want, l.addressOf(r), "%+v", c)
	}
}

// One address gets a part of the limits for visitors that bought nothing, and its own sessions make room for
// its next one.
func TestOneAddressHasAPart(t *testing.T) {
	_, _, endpoint := labOverHTTP(t, Limits{Sessions: 40, BehindProxy: true})
	other := &guest{t: t, endpoint: endpoint, header: map[string]string{"X-Forwarded-For": "192.0.2.1"}}
	require.Equal(t, http.StatusOK, other.arrive())
	var crowd []*guest
	for i := range 30 {
		one := &guest{t: t, endpoint: endpoint, header: map[string]string{
			"X-Forwarded-For": fmt.Sprintf("2001:db8::%d", i)}}
		require.Equal(t, http.StatusOK, one.arrive())
		crowd = append(crowd, one)
	}
	alive := 0
	for _, one := range crowd {
		status, _ := one.call("hello")
		if status == http.StatusOK {
			alive++
		}
	}
	require.Equal(t, 2, alive)
	status, _ := other.call("hello")
	require.Equal(t, http.StatusOK, status)
}

// A session without a purchase lives for minutes, one with a purchase for an hour.
func TestSessionsEnd(t *testing.T) {
	l := newLimiter(Limits{}, time.Second)
	now := time.Now()
	l.now = func() time.Time { return now }
	ended := map[string]bool{}
	enter := func(id string) *visitor {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		v := l.visitorFor(r, false)
		require.Nil(t, l.addSession(v))
		l.openSession(v, id, func() { ended[id] = true })
		return v
	}
	enter("guest")
	enter("buyer").bought = true
	l.mu.Lock()
	now = now.Add(guestIdleTime + time.Second)
	l.expire()
	l.mu.Unlock()
	l.closing.Wait()
	require.Equal(t, map[string]bool{"guest": true}, ended)
	l.mu.Lock()
	now = now.Add(buyerIdleTime)
	l.expire()
	l.mu.Unlock()
	l.closing.Wait()
	require.Len(t, ended, 2)
	require.Empty(t, l.sessions)
}

// A session that bought something, however long ago, makes room only for others that bought something.
func TestBuyersMakeNoRoom(t *testing.T) {
	l := newLimiter(Limits{Sessions: 4}, time.Second)
	now := time.Now()
	l.now = func() time.Time { return now }
	var mu sync.Mutex
	ended := map[string]bool{}
	enter := func(id string) *refusal {
		v := &visitor{id: id, close: func() {}}
		v.ctx, v.cancel = context.WithCancel(l.ctx)
		now = now.Add(time.Second)
		refused := l.addSession(v)
		if refused == nil {
			l.openSession(v, id, func() { mu.Lock(); defer mu.Unlock(); ended[id] = true })
		}
		return refused
	}
	for _, id := range []string{"buyer", "a", "b", "c", "d"} {
		require.Nil(t, enter(id), id)
		if id == "buyer" {
			l.sessions[id].bought = true
		}
	}
	l.closing.Wait()
	require.Equal(t, map[string]bool{"a": true, "b": true}, ended,
		"half of 4 are for those who bought nothing")
	for _, id := range []string{"c", "d"} {
		l.sessions[id].bought = true
	}
	require.Nil(t, enter("e"))
	l.sessions["e"].bought = true
	require.NotNil(t, enter("f"), "all bought something, and were here a moment ago")
	now = now.Add(askedTime)
	require.Nil(t, enter("l"))
	l.closing.Wait()
	require.True(t, ended["buyer"], "the first of them")
}

// Sessions of others are neither guessed nor ended.
func TestSessionsOfOthers(t *testing.T) {
	_, _, endpoint := labOverHTTP(t, Limits{})
	owner := &guest{t: t, endpoint: endpoint}
	require.Equal(t, http.StatusOK, owner.arrive())
	require.GreaterOrEqual(t, len(owner.id), 26, "130 bits in base32")
	for _, id := range []string{strings.ToLower(owner.id), owner.id[1:], owner.id + "A",
		strings.Repeat("A", 26), strings.Repeat("x", 10<<10)} {
		for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPost} {
			status, answer, _ := (&guest{t: t, endpoint: endpoint, id: id}).send(method, opening)
			require.Equal(t, http.StatusNotFound, status, answer)
		}
	}
	long := &guest{t: t, endpoint: endpoint, id: strings.Repeat("x", 64<<10)}
	status, _, _ := long.send(http.MethodGet, "")
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status)
	status, _ = owner.call("hello")
	require.Equal(t, http.StatusOK, status)
	status, _, _ = owner.send(http.MethodDelete, "")
	require.Equal(t, http.StatusNoContent, status)
	status, _ = owner.call("hello")
	require.Equal(t, http.StatusNotFound, status)
}

// A batch is bounded over HTTP as it is over stdio.
func TestBatchesAreBounded(t *testing.T) {
	_, _, endpoint := labOverHTTP(t, Limits{})
	one := &guest{t: t, endpoint: endpoint}
	require.Equal(t, http.StatusOK, one.arrive())
	const ping = `{"jsonrpc":"2.0","id":%d,"method":"ping"}`
	batch := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(ping, i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	status, answer, _ := one.send(http.MethodPost, batch(maxBatch+1))
	require.Equal(t, http.StatusBadRequest, status, answer)
	require.Contains(t, answer, "1 to 100 messages")
	status, answer, _ = one.send(http.MethodPost, "[]")
	require.Equal(t, http.StatusBadRequest, status, answer)
	status, answer, _ = one.send(http.MethodPost, batch(5))
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, 5, strings.Count(answer, `"result":{}`))
}

// A call whose client hung up still counts, and is cancelled with its session.
func TestAbandonedCallsCount(t *testing.T) {
	_, _, endpoint := labOverHTTP(t, Limits{})
	one := &guest{t: t, endpoint: endpoint}
	require.Equal(t, http.StatusOK, one.arrive())
	for i := range maxCalls {
		end, isRunning := hanging(t, one, 100+i, false)
		require.True(t, isRunning)
		end()
	}
	_, answer := one.call("hello")
	require.Contains(t, answer, `"code":-32000`)
	status, _, _ := one.send(http.MethodDelete, "")
	require.Equal(t, http.StatusNoContent, status)
}
