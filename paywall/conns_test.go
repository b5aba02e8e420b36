package paywall

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection on which nothing is served makes room for the next, the oldest first; one whose
// request is answered does not.
func TestConnectionsMakeRoom(t *testing.T) {
	c := &conns{most: 3, all: map[net.Conn]*conn{}}
	open := func() net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		return near
	}
	served, away, slow := open(), open(), open()
	for _, one := range []net.Conn{served, away, slow} {
		require.Nil(t, c.follow(one, http.StateNew))
		require.Nil(t, c.follow(one, http.StateActive))
	}
	c.all[served].phase = serving
	require.Nil(t, c.follow(away, http.StateIdle))
	c.all[away].since = time.Now().Add(-time.Minute)
	require.Equal(t, away, c.follow(open(), http.StateNew), "idle for a minute")
	c.follow(away, http.StateClosed)
	require.Equal(
		t,
		slow,
		c.follow(open(), http.StateNew),
		"in the middle of its headers, for longer than the new",
	)
	for _, one := range c.all {
		one.phase = serving
	}
	newest := open()
	require.Equal(t, newest, c.follow(newest, http.StateNew), "all others are served")
}

// Of those in the middle of their headers only some are kept.
func TestSlowHeadersMakeRoom(t *testing.T) {
	c := &conns{most: 1000, all: map[net.Conn]*conn{}}
	var first net.Conn
	for i := range maxReading + 1 {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		if i == 0 {
			first = near
		}
		require.Nil(t, c.follow(near, http.StateNew))
		surplus := c.follow(near, http.StateActive)
		c.all[near].since = time.Now().Add(time.Duration(i-maxReading) * time.Second)
		if i < maxReading {
			require.Nil(t, surplus)
		} else {
			require.Equal(t, first, surplus)
		}
	}
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

// Who does not read is not waited for, and who reads slowly gets all of a large answer.
func TestAnswersArePaced(t *testing.T) {
	p := &patient{}
	n, err := (&pacedWriter{p}).Write(make([]byte, 2*writePart+1))
	require.NoError(t, err)
	require.Equal(t, 2*writePart+1, n)
	require.Equal(t, []int{writePart, writePart, 1}, p.parts)
	require.Len(t, p.deadlines, 3)
	for _, at := range p.deadlines {
		require.WithinDuration(t, time.Now().Add(writeTime), at, time.Minute)
	}
	n, err = (&pacedWriter{p}).Write(nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

// The time for one answer is not that for the next on its connection, which may have no body.
func TestAnAnswersTimeIsItsOwn(t *testing.T) {
	p := &patient{ResponseWriter: httptest.NewRecorder()}
	g := newGate(Limits{}, time.Second)
	g.let(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusAccepted)
	}),
		isSessionless).
		ServeHTTP(p, httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}")))
	require.Equal(t, []time.Time{{}}, p.deadlines)
}

// Streams of subscriptions have no end; who opens many loses the first of them, and calls go on.
func TestListenersMakeRoom(t *testing.T) {
	l, f := newLab(t, nil), &Proxy{}
	endpoint := overHTTP(t, l, f, Limits{Sessions: 8})
	const listen = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{` +
		`"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	var streams []*http.Response
	var lines []*bufio.Scanner
	for range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(listen))
		require.NoError(t, err)
		for name, value := range map[string]string{"Content-Type": "application/json",
			"Mcp-Protocol-Version": sessionless, "Accept": "application/json, text/event-stream",
			"Mcp-Method": "subscriptions/listen"} {
			request.Header.Set(name, value)
		}
		stream, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
		require.NoError(t, err)
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

// The id of a request that is refused is found in what has come of it.
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
		if id := idOf([]byte(body)); id != nil {
			got = string(jsonOf(id))
		}
		require.Equal(t, want, got, body)
	}
}

// Who shows a payment has a share of the calls that no crowd of others fills.
func TestPayersHaveAShare(t *testing.T) {
	g := newGate(Limits{Sessions: 10}, time.Second)
	plain, paying := []byte(`{"method":"tools/call"}`), []byte(`{"params":{"_meta":{"x402/payment":{}}}}`)
	newcomer := func() *visitor {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		r.RemoteAddr = "127.0.0.1:5"
		return g.visitor(r, true)
	}
	for i := range maxBatch {
		_, refused := g.enter(newcomer(), plain, http.Header{})
		require.Nil(t, refused, "%d", i)
	}
	_, refused := g.enter(newcomer(), plain, http.Header{})
	require.NotNil(t, refused)
	require.Equal(t, http.StatusServiceUnavailable, refused.status)
	leave, refused := g.enter(newcomer(), paying, http.Header{})
	require.Nil(t, refused)
	leave()
	buyer := newcomer()
	buyer.bought = true
	_, refused = g.enter(buyer, plain, http.Header{})
	require.Nil(t, refused)
}
