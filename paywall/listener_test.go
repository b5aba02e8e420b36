package paywall

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

type pipes struct {
	net.Listener
	next chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) { return <-p.next, nil }

// open is a connection as the server has it, and its other end.
func (p *pipes) open(t *testing.T, c *limitListener) (own *conn, far net.Conn) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	p.next <- near
	return must.Get(c.Accept())(t).(*conn), far
}

func begin(t *testing.T, own *conn, far net.Conn) {
	go func() { _, _ = far.Write([]byte("P")) }()
	must.Get(own.Read(make([]byte, 1)))(t)
}

// Connections that serve no request make room for new ones, the oldest first; a connection whose request is
// being served does not.
func TestConnectionsMakeRoom(t *testing.T) {
	p := &pipes{next: make(chan net.Conn, 1)}
	c := newLimitListener(p, 3)
	var all [3]*conn
	for i := range all {
		var far net.Conn
		all[i], far = p.open(t, c)
		begin(t, all[i], far)
	}
	served, away, slow := all[0], all[1], all[2]
	require.True(t, served.setPhase(serving))
	require.True(t, away.setPhase(idle))
	away.since = time.Now().Add(-time.Minute)
	fourth, _ := p.open(t, c)
	require.Equal(t, dropped, away.phase, "idle for a minute")
	require.ErrorIs(t, must.Err(away.Write([]byte("x"))), io.ErrClosedPipe)
	fifth, _ := p.open(t, c)
	require.Equal(t, dropped, slow.phase, "in the middle of its headers, for longer than the new")
	require.True(t, fourth.setPhase(serving))
	require.True(t, fifth.setPhase(serving))
	newest, _ := p.open(t, c)
	require.Equal(t, dropped, newest.phase, "all others are served")
	require.Equal(t, serving, served.phase)
	require.NoError(t, served.Close())
	after, _ := p.open(t, c)
	require.Equal(t, idle, after.phase)
}

// Only some of the connections in the middle of a request are kept.
func TestSlowRequestsMakeRoom(t *testing.T) {
	p := &pipes{next: make(chan net.Conn, 1)}
	c := newLimitListener(p, 1000)
	var all []*conn
	for i := range maxReading + 1 {
		own, far := p.open(t, c)
		all = append(all, own)
		begin(t, own, far)
		own.since = time.Now().Add(time.Duration(i-maxReading) * time.Second)
	}
	require.Equal(t, dropped, all[0].phase)
	require.Equal(t, maxReading, c.count(reading))
	require.False(t, all[0].setPhase(serving), "what came of it meanwhile is not served")
	require.Equal(t, dropped, all[0].phase)
}

// A request that is being answered is answered to its end, however many others come meanwhile and
// stop in their middle.
func TestAnswersAreFinished(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := newLimitListener(listener, 1000)
	answers := func(rw http.ResponseWriter, _ *http.Request) {
		close(began)
		<-end
		rw.WriteHeader(http.StatusAccepted)
	}
	server := &http.Server{Handler: c.markServing(http.HandlerFunc(answers))}
	c.watch(server)
	over := make(chan error, 1)
	go func() { over <- server.Serve(c) }()
	status := make(chan int, 1)
	client := &http.Client{Transport: &http.Transport{}}
	go func() {
		answer, err := client.Post("http://"+listener.Addr().String(), "text/plain", strings.NewReader("x"))
		if err != nil {
			status <- 0
			return
		}
		answer.Body.Close()
		status <- answer.StatusCode
	}()
	<-began
	for range 2 * maxReading {
		one := must.Get(net.Dial("tcp", listener.Addr().String()))(t)
		defer one.Close()
		must.Get(one.Write([]byte("POST / HTTP/1.1\r\n")))(t)
	}
	all := func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.count(reading) * len(c.conns) }
	assert.Eventually(t, func() bool { return all() == maxReading*(maxReading+1) }, time.Minute,
		time.Millisecond)
	close(end)
	require.Equal(t, http.StatusAccepted, <-status)
	client.CloseIdleConnections()
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-over, http.ErrServerClosed)
}

// patient is an http.ResponseWriter that notes for how long each part of an answer may take.
type patient struct {
	http.ResponseWriter
	parts     []int
	deadlines []time.Time
}

func (p *patient) Write(text []byte) (int, error) {
	p.parts = append(p.parts, len(text))
	return len(text), nil
}

func (p *patient) SetWriteDeadline(at time.Time) error {
	p.deadlines = append(p.deadlines, at)
	return nil
}

// A client that does not read is given up, and one that reads slowly gets all of a large response.
func TestAnswersArePaced(t *testing.T) {
	p := &patient{}
	n := must.Get((&pacedWriter{ResponseWriter: p}).Write(make([]byte, 2*writePart+1)))(t)
	require.Equal(t, 2*writePart+1, n)
	require.Equal(t, []int{writePart, writePart, 1}, p.parts)
	require.Len(t, p.deadlines, 3)
	for _, at := range p.deadlines {
		require.WithinDuration(t, time.Now().Add(writeTime), at, time.Minute)
	}
	n = must.Get((&pacedWriter{ResponseWriter: p}).Write(nil))(t)
	require.Zero(t, n)
}

// The deadline of a response does not apply to the next one on its connection, which may have no body.
func TestAnAnswersTimeIsItsOwn(t *testing.T) {
	p := &patient{ResponseWriter: httptest.NewRecorder()}
	l := newLimiter(Limits{}, time.Second)
	accepts := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusAccepted)
	})
	request := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}"))
	l.limitHTTP(accepts, isSessionless).ServeHTTP(p, request)
	require.Equal(t, []time.Time{{}}, p.deadlines)
}

// Subscription streams do not end; a client that opens many loses the first of them, and calls go on.
func TestListenersMakeRoom(t *testing.T) {
	_, _, endpoint := labOverHTTP(t, Limits{Sessions: 8})
	const listen = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{` +
		`"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	var streams []*http.Response
	var lines []*bufio.Scanner
	for range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		one := &guest{t: t, endpoint: endpoint, header: map[string]string{
			"Mcp-Protocol-Version": sessionlessVersion, "Mcp-Method": "subscriptions/listen"}}
		stream := must.Get(one.roundTrip(ctx, http.MethodPost, listen))(t)
		t.Cleanup(func() { stream.Body.Close() })
		line := bufio.NewScanner(stream.Body)
		isHeard := false
		for !isHeard && line.Scan() {
			isHeard = strings.Contains(line.Text(), "acknowledged")
		}
		require.True(t, isHeard)
		streams, lines = append(streams, stream), append(lines, line)
	}
	for i := range 2 {
		for lines[i].Scan() { // to its end
			continue
		}
		require.NoError(t, lines[i].Err(), "%d of %d", i, len(streams))
	}
	one := &guest{t: t, endpoint: endpoint}
	require.Equal(t, http.StatusOK, one.arrive())
	status, answer := one.call("hello")
	require.Equal(t, http.StatusOK, status, answer)
}

// The id of a refused request is found in the part of it that was read.
func TestIDOfHalfAMessage(t *testing.T) {
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"method":"a","params":{"x":"yyy`: "7",
		`{"id":"a","params`:                      `"a"`,
		`{"params":{"id":1},"jsonrpc":"2.0","id`: "<nil>",
		`{"id":{"id":1}}`:                        "<nil>",
		`[{"id":1}]`:                             "<nil>",
		`{"id":`:                                 "<nil>",
		"":                                       "<nil>",
	} {
		got := "<nil>"
		if id := requestID([]byte(body)); id != nil {
			got = string(jsonOf(id))
		}
		require.Equal(t, want, got, body)
	}
}

// Calls that carry a payment have limits of their own, which no crowd of others can use up.
func TestPayersHaveAShare(t *testing.T) {
	l := newLimiter(Limits{Sessions: 10}, time.Second)
	plain, paying := []byte(`{"method":"tools/call"}`), []byte(`{"params":{"_meta":{"x402/payment":{}}}}`)
	newcomer := func() *visitor {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		r.RemoteAddr = "127.0.0.1:5"
		return l.visitorFor(r, true)
	}
	for i := range maxBatch {
		_, refused := l.acquire(newcomer(), plain, http.Header{})
		require.Nil(t, refused, "%d", i)
	}
	_, refused := l.acquire(newcomer(), plain, http.Header{})
	require.NotNil(t, refused)
	require.Equal(t, http.StatusServiceUnavailable, refused.status)
	leave, refused := l.acquire(newcomer(), paying, http.Header{})
	require.Nil(t, refused)
	leave()
	buyer := newcomer()
	buyer.bought = true
	_, refused = l.acquire(buyer, plain, http.Header{})
	require.Nil(t, refused)
}

// What a paywall has at a moment can be seen, and what found no place stays counted.
func TestLoad(t *testing.T) {
	l, f, endpoint := labOverHTTP(t, Limits{})
	crowd := func() {
		answer := must.Get(http.Post(endpoint, "application/json", strings.NewReader("[]")))(t)
		_ = answer.Body.Close()
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
	}
	crowd() // it serves from here on
	require.True(t, l.paywall.begin())
	require.Equal(t, Load{Running: 1, Calls: map[string]int{"guest": 0, "payer": 0, "buyer": 0},
		Refused: map[int]uint64{http.StatusBadRequest: 1}}, f.Load())
	l.paywall.end()
	require.Zero(t, f.Load().Running)

	crowd()
	limits := f.limits.Load()
	require.Equal(t, http.StatusOK, (&guest{t: t, endpoint: endpoint}).arrive())
	release, refused := limits.acquire(&visitor{}, []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), nil)
	require.Nil(t, refused)
	at := f.Load()
	require.Equal(t, map[int]uint64{http.StatusBadRequest: 2}, at.Refused)
	require.Equal(t, 1, at.Sessions)
	require.Equal(t, 1, at.Calls["guest"])
	require.Zero(t, at.Running)
	release()
	require.Zero(t, f.Load().Calls["guest"])
	require.Equal(t, Load{Calls: map[string]int{}}, (&Proxy{Paywall: l.paywall}).Load(), "over stdio")
}
