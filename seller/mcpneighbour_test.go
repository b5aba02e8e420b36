package seller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// plain is an MCP server that answers as told, where the SDK's would not do what real ones do.
type plain struct {
	get, call func(w http.ResponseWriter, r *http.Request, q question)
	forgotten atomic.Int64 // sessions below this are unknown
	opened    atomic.Int64 // sessions
	deleted   atomic.Int64
}

type question struct {
	ID     json.RawMessage
	Method string
	body   []byte
}

func (p *plain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := question{}
	q.body, _ = io.ReadAll(r.Body)
	_ = json.Unmarshal(q.body, &q)
	switch {
	case r.Method == http.MethodDelete:
		p.deleted.Add(1)
	case r.Method == http.MethodGet:
		p.get(w, r, q)
	case q.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", fmt.Sprint(p.opened.Add(1)))
		says(w, q, `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
	case q.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case q.Method == "tools/call":
		p.call(w, r, q)
	default:
		says(w, q, `"error":{"code":-32601,"message":"no"}`)
	}
}

func peek(r *http.Request) (q question, ok bool) {
	q.body, _ = io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(q.body))
	return q, json.Unmarshal(q.body, &q) == nil
}

func says(w http.ResponseWriter, q question, what string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, q.ID, what)
}

func streams(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.Copy(w, strings.NewReader(text))
	_ = http.NewResponseController(w).Flush()
}

const bought = `"result":{"content":[{"type":"text","text":"bought"}]}`

// What goes wrong beside a paid call is not the paid call's end: neither when the session's own
// stream cannot be opened again, nor when a neighbour is refused or its answer is broken. The
// server answers the paid one when that has happened.
func TestAPaidCallOutlivesItsNeighbours(t *testing.T) {
	refuse := func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, "no", status) }
	}
	broken := func(kind, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header().Set("Content-Type", kind); fmt.Fprint(w, text) }
	}
	for name, c := range map[string]struct {
		own, call func(http.ResponseWriter) // what the second GET, or the neighbour's POST, comes to
		code      x402.Code
	}{
		"own stream, 400": {own: refuse(400)}, "own stream, 404": {own: refuse(404)},
		"own stream, 409": {own: refuse(409)}, "own stream, 500": {own: refuse(500)},
		"own stream, ends":   {own: func(w http.ResponseWriter) { streams(w, "retry: 1\n\n") }},
		"neighbour, 400":     {call: refuse(400), code: x402.ServerUnavailable},
		"neighbour, 403":     {call: refuse(403), code: x402.ServerUnavailable},
		"neighbour, 404":     {call: refuse(404), code: x402.ServerUnavailable},
		"neighbour, 503":     {call: refuse(503), code: x402.ServerUnavailable},
		"neighbour, no JSON": {call: broken("application/json", "{"), code: x402.SessionTerminated},
		"neighbour, HTML":    {call: broken("text/html", "<p>"), code: x402.ServerUnavailable},
		"neighbour, no event": {call: broken("text/event-stream", "data: {\n\n"),
			code: x402.SessionTerminated},
	} {
		for _, kind := range []string{"message", "stream"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				arrived, over := make(chan struct{}), make(chan struct{})
				var gets atomic.Int64
				server := &plain{}
				server.get = func(w http.ResponseWriter, r *http.Request, _ question) {
					switch n := gets.Add(1); {
					case c.own == nil:
						streams(w, ": nothing\n\n")
						<-r.Context().Done()
					case n == 1:
						streams(w, "retry: 1\n\n")
						<-arrived
					default:
						c.own(w)
					}
				}
				server.call = func(w http.ResponseWriter, r *http.Request, q question) {
					if bytes.Contains(q.body, []byte("neighbour")) {
						c.call(w)
						return
					}
					if kind == "stream" {
						streams(w, ": wait\n\n")
					}
					close(arrived)
					select {
					case <-over:
					case <-r.Context().Done():
					}
					if kind == "stream" {
						streams(w, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n\n", q.ID, bought))
						return
					}
					says(w, q, bought)
				}
				s := serve(t, server.ServeHTTP)
				t.Cleanup(s.CloseClientConnections)
				m := reach(t, Options{}, s.URL)
				var a *Answer
				var err error
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					a, err = m.Present(within(t, time.Minute), toolCall(s.URL+"#paid"), aPayment)
				}()
				<-arrived
				if c.call != nil {
					_, refused := m.Ask(within(t, time.Minute), toolCall(s.URL+"#neighbour"))
					require.Equal(t, c.code, code(refused), "%v", refused)
				} else {
					want := int64(2)
					if strings.Contains(name, "ends") {
						want = 3
					}
					require.Eventually(t, func() bool {
						return gets.Load() >= want
					}, time.Minute, time.Millisecond)
					time.Sleep(50 * time.Millisecond) // the SDK ends the session for it
				}
				require.Zero(t, server.deleted.Load(), "the server would end the call with the session")
				close(over)
				<-answered
				require.NoError(t, err)
				require.Contains(t, string(a.Content), "bought")
			})
		}
	}
}

// Closing waits for no answer.
func TestClosingEndsACall(t *testing.T) {
	arrived := make(chan struct{})
	server := &plain{get: func(w http.ResponseWriter, _ *http.Request, _ question) {
		w.WriteHeader(http.StatusMethodNotAllowed)
	}}
	server.call = func(w http.ResponseWriter, r *http.Request, _ question) {
		streams(w, ": wait\n\n")
		close(arrived)
		<-r.Context().Done()
	}
	s := serve(t, server.ServeHTTP)
	m := reach(t, Options{}, s.URL)
	go func() {
		<-arrived
		assert.NoError(t, m.Close())
	}()
	_, err := m.Ask(within(t, time.Minute), toolCall(s.URL+"#free"))
	require.Equal(t, x402.SessionTerminated, code(err), "%v", err)
	s.CloseClientConnections()
}

func TestARefusalToOpenASessionIsQuoted(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"reason":"who are you"}`)
	})
	_, err := reach(t, Options{}, s.URL).Ask(within(t, time.Minute), toolCall(s.URL+"#free"))
	require.Equal(t, x402.ServerUnavailable, code(err), "%v", err)
	details := x402.AsError(err).Details
	require.Equal(t, []any{http.StatusForbidden, `"{\"reason\":\"who are you\"}"`},
		[]any{details["httpStatus"], details["said"]})
}

// One that refuses without a word of MCP ends neither the session, which may have been paid for,
// nor is it taken for its end.
func TestARefusalIsNotTheEndOfASession(t *testing.T) {
	var status atomic.Int64
	server := &plain{get: func(w http.ResponseWriter, _ *http.Request, _ question) {
		w.WriteHeader(http.StatusMethodNotAllowed)
	}}
	server.call = func(w http.ResponseWriter, r *http.Request, q question) {
		in := r.Header.Get("Mcp-Session-Id")
		switch code := int(status.Load()); {
		case code == http.StatusOK, fmt.Sprint(server.opened.Load()) == in && server.forgotten.Load() > 0:
			says(w, q, bought)
		case code == http.StatusBadRequest && server.forgotten.Load() > 0: // the TypeScript SDK's example
			w.WriteHeader(code)
			fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
		default:
			http.Error(w, "away", code)
		}
	}
	s := serve(t, server.ServeHTTP)
	m := reach(t, Options{}, s.URL)
	ask := func(code int) error {
		status.Store(int64(code))
		return must.Err(m.Ask(within(t, time.Minute), toolCall(s.URL+"#free")))
	}
	require.NoError(t, ask(200))
	for _, status := range []int{400, 401, 403, 413, 429, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			err := ask(status)
			require.Equal(t, x402.ServerUnavailable, code(err), "%d: %v", status, err)
			require.Contains(t, err.Error(), fmt.Sprint("HTTP ", status))
			require.Equal(t, `"away\n"`, x402.AsError(err).Details["said"])
		})
	}
	require.NoError(t, ask(200))
	require.EqualValues(t, 1, server.opened.Load())

	for i, status := range []int{400, 404} { // it was started again, and knows nobody
		server.forgotten.Add(1)
		server.opened.Add(1)
		require.NoError(t, ask(status), "a session is opened again: %d", status)
		require.EqualValues(t, 3+2*i, server.opened.Load())
	}
	require.NoError(t, m.Close())
	require.EqualValues(t, 3, server.deleted.Load(), "each session that was known is ended")
}

// On the old wire an answer comes on another stream; a refusal is the answer all the same, and at
// once.
func TestARefusalOnTheOldWire(t *testing.T) {
	o := newOfficial()
	old := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return o.Server }, nil)
	s := serveBut(t, old, "tools/call", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "away", http.StatusForbidden)
	})
	m := reach(t, Options{}, s.URL)
	q := toolCall(s.URL + "/old#paid")
	_, err := m.Ask(within(t, time.Minute), q)
	require.Equal(t, x402.ServerUnavailable, code(err), "%v", err)
	a := must.Get(m.Present(within(t, time.Minute), q, aPayment))(t)
	require.Equal(t, http.StatusForbidden, a.Status)
}

// A list that is refused costs no call its answer: neither where the session goes on, nor where the
// SDK ends it, because the server says that it does not know it any more. The server is not told
// that before.
func TestPaidCallOutlivesRefusedList(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			arrived, over := make(chan struct{}), make(chan struct{})
			server := &plain{get: noStream}
			server.call = func(w http.ResponseWriter, _ *http.Request, q question) {
				streams(w, ": wait\n\n")
				close(arrived)
				<-over
				streams(w, answerEvent(q.ID))
			}
			s := serveBut(t, server, "tools/list", func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no", status)
			})
			m := reach(t, Options{}, s.URL)
			answered := make(chan error, 1)
			go func() {
				_, err := m.Present(within(t, time.Minute), toolCall(s.URL+"#paid"), aPayment)
				answered <- err
			}()
			<-arrived
			require.Error(t, must.Err(m.Tools(within(t, time.Minute), s.URL)))
			time.Sleep(50 * time.Millisecond) // for the SDK to end the session
			assert.Zero(t, server.deleted.Load(), "the server would end the call with the session")
			close(over)
			require.NoError(t, <-answered)
		})
	}
}
