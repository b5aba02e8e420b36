package paywall

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func objects() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapObjects
}

// A request that opens no session leaves nothing behind, whatever it was.
func TestRequestsLeaveNothing(t *testing.T) {
	_, _, endpoint := labOverHTTP(t, Limits{})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	const many = 2000
	for _, c := range []struct{ method, body string }{
		{http.MethodGet, ""}, {http.MethodPut, ""}, {http.MethodDelete, ""},
		{http.MethodPost, strings.Repeat(" ", 64<<10+1)},
	} {
		visit := func(n int) {
			for range n {
				request := must.Get(http.NewRequest(c.method, endpoint, strings.NewReader(c.body)))(t)
				answer := must.Get(client.Do(request))(t)
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		}
		visit(10)
		before := objects()
		visit(many)
		require.Less(t, objects(), before+many/2, "%s", c.method)
	}
}

// A client that opened no session can neither subscribe nor set a log level: nothing would ever undo that.
func TestNothingBeforeASession(t *testing.T) {
	_, f, endpoint := labOverHTTP(t, Limits{})
	one := &guest{t: t, endpoint: endpoint}
	for i := range 10 {
		one.send(http.MethodPost, fmt.Sprintf(
			`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"weather://%d"}}`, i))
		_, answer, _ := one.send(http.MethodPost,
			`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
		require.Contains(t, answer, "not initialized")
	}
	f.subscribing.Lock()
	defer f.subscribing.Unlock()
	require.Empty(t, f.subscribed)
	f.buyersMu.Lock()
	defer f.buyersMu.Unlock()
	require.Empty(t, f.levels)
}

func TestASessionOfNobodyEnds(t *testing.T) {
	l := newLimiter(Limits{}, time.Second)
	v := &visitor{}
	v.ctx, v.cancel = context.WithCancel(l.ctx)
	require.Nil(t, l.addSession(v))
	l.dropSessionless(v)
	ended := false
	l.openSession(v, "late", func() { ended = true })
	l.closing.Wait()
	require.True(t, ended)
	require.Empty(t, l.sessions)
}

// bought has a client of its own buy once, in a way that can be shown again.
func (l *lab) bought(t *testing.T, endpoint string) (client *mcp.ClientSession, shown map[string]any) {
	t.Helper()
	client = l.visits(t, endpoint, nil)
	c := callBy(t, client, "search", nil).challenge()
	shown = meta(c, l.payer.sign(t, c, 0, named))
	require.Equal(t, product, callBy(t, client, "search", shown).text)
	return client, shown
}

func (l *lab) visits(t *testing.T, endpoint string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := must.Get(mcp.NewClient(&mcp.Implementation{Name: "visitor"}, o).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: endpoint, DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// A purchase that is presented again in other sessions is answered there, but does not make buyers of them.
func TestOnePurchaseMakesOneBuyer(t *testing.T) {
	l, _, endpoint := labOverHTTP(t, Limits{})
	first, shown := l.bought(t, endpoint)
	second := l.visits(t, endpoint, nil)
	require.Equal(t, product, callBy(t, second, "search", shown).text)
	require.Len(t, l.Settlements(), 1)
	much := &mcp.CallToolParams{Name: "hello", Arguments: map[string]any{"much": strings.Repeat("x", 1<<20)}}
	must.Get(first.CallTool(t.Context(), much))(t)
	require.Error(t, must.Err(second.CallTool(t.Context(), much)), "it bought nothing")
}

// Calls of free tools that never end, from clients that hung up and clients that did not, some with an
// invalid payment, keep out neither newcomers that ask for a price and pay, nor earlier buyers.
func TestCallsThatHangKeepOutNoBuyer(t *testing.T) {
	for name, sessions := range map[string]int{"and hang up": 24, "and wait": 400} {
		t.Run(name, func(t *testing.T) {
			l, _, endpoint := labOverHTTP(t, Limits{Sessions: sessions})
			early, _ := l.bought(t, endpoint)
			for i := range 10 {
				one := &guest{t: t, endpoint: endpoint}
				require.Equal(t, http.StatusOK, one.arrive())
				for j := range maxCalls {
					end, isRunning := hanging(t, one, 100+j, i%2 == 1)
					if name == "and hang up" {
						end()
					} else {
						defer end()
					}
					if !isRunning {
						break
					}
				}
			}
			l.bought(t, endpoint)
			must.Get(early.CallTool(t.Context(), callOf("hello", nil)))(t)
		})
	}
}

// hanging calls a tool that does not end, perhaps with a payment that is none, and returns when it runs,
// or was refused.
func hanging(t *testing.T, g *guest, id int, paying bool) (end func(), isRunning bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	more := ""
	if paying {
		more = `,"x402/payment":{}`
	}
	response := must.Get(g.roundTrip(ctx, http.MethodPost, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"hold","arguments":{},`+
			`"_meta":{"progressToken":"p"%s}}}`, id, more)))(t)
	for lines := bufio.NewScanner(response.Body); !isRunning && lines.Scan(); {
		isRunning = strings.Contains(lines.Text(), "looking")
	}
	return func() { cancel(); response.Body.Close() }, isRunning
}

// Subscriptions of visitors that bought nothing leave some to those that did.
func TestSubscriptionsOfStrangersLeaveSome(t *testing.T) {
	l, _, endpoint := labOverHTTP(t, Limits{})
	buyer, _ := l.bought(t, endpoint)
	for i := range maxSubscribed/maxSubscriptions + 1 {
		one := l.visits(t, endpoint, nil)
		for j := range maxSubscriptions {
			err := one.Subscribe(t.Context(), &mcp.SubscribeParams{URI: fmt.Sprintf("weather://%d/%d", i, j)})
			if err != nil {
				break
			}
		}
	}
	require.NoError(t, buyer.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "weather://buyer"}))
}

// A buyer that bought something has an upstream session that strangers cannot take over, and gets one however
// many theirs are in use.
func TestSessionsBehindOfBuyersStay(t *testing.T) {
	l, f, endpoint := labOverHTTP(t, Limits{Sessions: 12})
	can := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}}}
	crowd := func() {
		for i := range 6 {
			one := l.visits(t, endpoint, can)
			go func() { _, _ = one.CallTool(t.Context(), callOf("hold", nil)) }()
			wanted := min(i+1, 3)
			require.Eventually(t, func() bool {
				f.buyersMu.Lock()
				defer f.buyersMu.Unlock()
				return len(f.buyers) >= wanted
			}, time.Minute, time.Millisecond)
		}
	}
	crowd()
	behind := func(of *mcp.ClientSession) (b *buyer) {
		f.buyersMu.Lock()
		defer f.buyersMu.Unlock()
		for session, own := range f.buyers {
			if session.ID() == of.ID() {
				b = own
			}
		}
		return b
	}
	l.client = l.visits(t, endpoint, can)
	require.Equal(t, product, l.buy(t, nil).text)
	own := behind(l.client)
	require.NotNil(t, own)
	crowd()
	require.Same(t, own, behind(l.client))
}

// Of large responses that nobody reads only some stay in memory; those to buyers are kept.
func TestAnswersThatNobodyReads(t *testing.T) {
	const size = 4 << 20
	var writing atomic.Int64
	failed := make(chan bool, 100) // whose answer failed: a buyer's?
	l := newLimiter(Limits{}, time.Second)
	server := httptest.NewUnstartedServer(l.limitHTTP(http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) {
			isBuyer := r.URL.Path == "/buyer"
			v := visitorFrom(r.Context())
			v.bought = isBuyer
			writing.Add(1)
			defer writing.Add(-1)
			_, err := rw.Write(make([]byte, size))
			if err != nil {
				failed <- isBuyer
			}
		}), isSessionless))
	server.Listener = newLimitListener(server.Listener, 1000)
	server.Start()
	t.Cleanup(server.Close)
	open := func(path string) (response *http.Response) {
		client := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network,
			address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				err = c.(*net.TCPConn).SetReadBuffer(64 << 10)
			}
			return c, err
		}}
		response = must.Get(client.RoundTrip(httptest.NewRequest(http.MethodGet, server.URL+path, nil)))(t)
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	buyer := open("/buyer")
	const many = 20
	for range many {
		open("/guest")
	}
	for range many - maxGuestResponseBytes/size {
		require.False(t, <-failed, "a buyer's")
	}
	require.Eventually(t, func() bool { return writing.Load() == 1+maxGuestResponseBytes/size },
		time.Minute, time.Millisecond)
	require.EqualValues(t, size, must.Get(io.Copy(io.Discard, buyer.Body))(t))
}

// A subscriber that reads none of its updates delays nobody else's.
func TestUpdatesWaitForNobody(t *testing.T) {
	_, f, endpoint := labOverHTTP(t, Limits{})
	buyer := newPerson(t, "buyer", "2025-11-25", &mcp.StreamableClientTransport{Endpoint: endpoint})
	deaf := &guest{t: t, endpoint: endpoint}
	require.Equal(t, http.StatusOK, deaf.arrive())
	subscribe := func(uri string) {
		_, answer, _ := deaf.send(http.MethodPost, fmt.Sprintf(
			`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":%q}}`, uri))
		require.Contains(t, answer, `"result"`)
	}
	long := "weather://" + strings.Repeat("x", 2000)
	subscribe(long)
	for i := range 8 {
		uri := fmt.Sprintf("weather://%d", i)
		subscribe(uri)
		require.NoError(t, buyer.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}))
	}
	address := strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/mcp")
	stream := must.Get(net.Dial("tcp", address))(t)
	defer stream.Close()
	require.NoError(t, stream.(*net.TCPConn).SetReadBuffer(4<<10))
	must.Get(fmt.Fprintf(stream, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n"+
		"Mcp-Session-Id: %s\r\n\r\n", address, deaf.id))(t)
	_, err := io.ReadFull(stream, make([]byte, 100)) // it has begun
	require.NoError(t, err)
	tell := func(uri string) {
		f.forwardUpdate(t.Context(), &mcp.ResourceUpdatedNotificationRequest{
			Params: &mcp.ResourceUpdatedNotificationParams{URI: uri}})
	}
	before := runtime.NumGoroutine()
	for range 3000 {
		tell(long)
		time.Sleep(10 * time.Microsecond)
	}
	for i := range 8 {
		tell(fmt.Sprintf("weather://%d", i))
	}
	told := map[string]bool{}
	require.Eventually(t, func() bool {
		for len(buyer.updates) > 0 {
			told[<-buyer.updates] = true
		}
		return len(told) == 8
	}, time.Minute, time.Millisecond)
	require.Less(t, runtime.NumGoroutine(), before+100)
}

// Of a crowd that is gone no more is left than its seats, however many came.
func TestNothingIsLeftOfACrowd(t *testing.T) {
	_, f, endpoint := labOverHTTP(t, Limits{Sessions: 40})
	address := strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/mcp")
	visit := func(n int) {
		for i := range n {
			one := &guest{t: t, endpoint: endpoint}
			status, _, header := one.send(http.MethodPost, strings.Replace(opening, `"capabilities":{}`,
				`"capabilities":{"elicitation":{},"roots":{}}`, 1))
			require.Equal(t, http.StatusOK, status)
			one.id = header.Get("Mcp-Session-Id")
			stream := must.Get(net.Dial("tcp", address))(t)
			must.Get(fmt.Fprintf(stream, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n"+
				"Mcp-Session-Id: %s\r\n\r\n", address, one.id))(t)
			one.send(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe",`+
				`"params":{"uri":"weather://%d"}}`, i))
			end, _ := hanging(t, one, 4, i%2 == 0)
			end()
			half := must.Get(net.Dial("tcp", address))(t)
			must.Get(io.WriteString(half, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"))(t)
			half.Close()
			stream.Close()
		}
	}
	left := func() (goroutines int) {
		time.Sleep(300 * time.Millisecond)
		return runtime.NumGoroutine()
	}
	visit(60)
	before, held := left(), objects()
	visit(240)
	require.Eventually(t, func() bool { return left() <= before+50 }, time.Minute, time.Millisecond)
	require.Less(t, objects(), held+20_000)
	require.Eventually(t, func() bool {
		f.subscribing.Lock()
		defer f.subscribing.Unlock()
		f.buyersMu.Lock()
		defer f.buyersMu.Unlock()
		return len(f.subscribed) <= 20 && len(f.buyers) <= 20
	}, time.Minute, time.Millisecond)
}
