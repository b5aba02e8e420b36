package seller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

var aPayment = wire.Attach("mcp", json.RawMessage(`{}`))

func toolCall(url string) Request { return Request{Method: CallTool, URL: url} }

// serveBut serves what a handler does, but for requests with these words in their body.
func serveBut(t *testing.T, handler http.Handler, words string, instead http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q, _ := peek(r)
		if bytes.Contains(q.body, []byte(words)) {
			instead(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
	t.Cleanup(s.CloseClientConnections)
	return s
}

func noStream(w http.ResponseWriter, _ *http.Request, _ question) {
	w.WriteHeader(http.StatusMethodNotAllowed)
}

func answerEvent(id json.RawMessage) string {
	return fmt.Sprintf("id: 9\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n\n", id, bought)
}

// An answer's stream that breaks off is taken up where it was, also when the session has ended
// meanwhile. Where that is refused, this call alone has no answer.
func TestBrokenStreamIsResumed(t *testing.T) {
	for name, c := range map[string]struct {
		// what the nth GET for the rest comes to
		again func(w http.ResponseWriter, id json.RawMessage, n int64)
		lost  bool
	}{
		"the rest": {again: func(w http.ResponseWriter, id json.RawMessage, _ int64) {
			streams(w, answerEvent(id))
		}},
		"another call's answer first": {again: func(w http.ResponseWriter, id json.RawMessage, _ int64) {
			streams(w, "id: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{\"content\":[]}}\n\n"+
				answerEvent(id))
		}},
		"busy at first": {again: func(w http.ResponseWriter, id json.RawMessage, n int64) {
			if n == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			streams(w, answerEvent(id))
		}},
		"bit by bit": {again: func(w http.ResponseWriter, id json.RawMessage, n int64) {
			if n < 4 {
				streams(w, fmt.Sprintf("id: %d\ndata:\n\nid: none\ndata: {\"jso\nid: no", n+1))
				return
			}
			streams(w, answerEvent(id))
		}},
		"refused": {lost: true, again: func(w http.ResponseWriter, _ json.RawMessage, _ int64) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Method not allowed"},"id":null}`)
		}},
	} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, session ends: %v", name, ends), func(t *testing.T) {
				t.Parallel()
				arrived, over := make(chan struct{}), make(chan struct{})
				var again atomic.Int64
				var id json.RawMessage
				server := &plain{}
				server.get = func(w http.ResponseWriter, r *http.Request, q question) {
					last := r.Header.Get("Last-Event-Id")
					switch {
					case last != "":
						n := again.Add(1)
						assert.Contains(t, []string{"1", fmt.Sprint(n)}, last, "of whole events only")
						assert.Equal(t, "1", r.Header.Get("Mcp-Session-Id"))
						c.again(w, id, n)
					default:
						noStream(w, r, q)
					}
				}
				server.call = func(w http.ResponseWriter, _ *http.Request, q question) {
					if bytes.Contains(q.body, []byte("free")) {
						says(w, q, bought)
						return
					}
					id = q.ID
					streams(w, "id: 1\nretry: 1\ndata:\n\nid: 2\ndata: {\"jso")
					close(arrived)
					if ends {
						<-over
						time.Sleep(20 * time.Millisecond) // the SDK ends the session
					}
				}
				s := serveBut(t, server, "tools/list", http.NotFound) // the session is unknown, it says
				m := reach(t, Options{}, s.URL)
				if ends {
					go func() {
						<-arrived
						assert.Error(t, must.Err(m.Tools(within(t, time.Minute), s.URL)))
						close(over)
					}()
				}
				a, err := m.Present(within(t, time.Minute), toolCall(s.URL+"#paid"), aPayment)
				if c.lost {
					require.Equal(t, x402.SessionTerminated, code(err), "%v", err)
				} else {
					require.NoError(t, err)
					require.JSONEq(t, `{"content":[{"type":"text","text":"bought"}]}`, string(a.Content))
				}
				if !ends {
					must.Get(m.Ask(within(t, time.Minute), toolCall(s.URL+"#free")))(t)
					require.EqualValues(t, 1, server.opened.Load(), "the session lives")
				}
			})
		}
	}
}

// A session, whose way in may have been paid for, outlives its own stream: one that ends, is cut by
// a proxy, refused, or full of noise.
func TestASessionOutlivesItsOwnStream(t *testing.T) {
	var gets atomic.Int64
	server := &plain{}
	quiet := make(chan struct{})
	server.get = func(w http.ResponseWriter, r *http.Request, _ question) {
		switch n := gets.Add(1); {
		case n < 3:
			streams(w, "retry: 1\n\n")
		case n == 3:
			streams(w, "no colon\ndata: {\n\ndata: "+
				"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\nid: 5\n\n")
		case n == 4:
			assert.Equal(t, "5", r.Header.Get("Last-Event-Id"))
			w.WriteHeader(http.StatusBadGateway)
		default:
			w.WriteHeader(http.StatusConflict)
			close(quiet)
		}
	}
	server.call = func(w http.ResponseWriter, _ *http.Request, q question) { says(w, q, bought) }
	s := serve(t, server.ServeHTTP)
	m := reach(t, Options{}, s.URL)
	news := must.Get(m.Changes(s.URL))(t)
	ask := func() { must.Get(m.Ask(within(t, time.Minute), toolCall(s.URL+"#free")))(t) }
	ask()
	<-news // that it is open
	select {
	case <-news:
	case <-within(t, time.Minute).Done():
		t.Fatal("the server's message did not arrive")
	}
	<-quiet
	time.Sleep(20 * time.Millisecond) // for the SDK to end the session
	ask()
	require.EqualValues(t, 1, server.opened.Load())
}

// What is whole counts as the answer, however its server wraps it; and none of that ends the
// session.
func TestAWholeAnswerCounts(t *testing.T) {
	plainly := func(kind string) func(w http.ResponseWriter, q question) {
		return func(w http.ResponseWriter, q question) {
			w.Header()["Content-Type"] = []string{kind}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, q.ID, bought)
		}
	}
	cut := func(w http.ResponseWriter) {
		_ = http.NewResponseController(w).Flush()
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.Close()
		}
	}
	for name, call := range map[string]func(w http.ResponseWriter, q question){
		"text/plain": plainly("text/plain; charset=utf-8"), "no type": plainly(""),
		"a newer type":  plainly("application/json-rpc"),
		"cut behind it": func(w http.ResponseWriter, q question) { says(w, q, bought); cut(w) },
		"cut behind its event": func(w http.ResponseWriter, q question) {
			streams(w, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,%s}", q.ID, bought))
			cut(w)
		},
		"another session's name": func(w http.ResponseWriter, q question) {
			w.Header().Set("Mcp-Session-Id", "77")
			says(w, q, bought)
		},
		"behind noise": func(w http.ResponseWriter, q question) {
			streams(w, "no colon\nevent: other\ndata: {\n\ndata: {\n\ndata: "+
				"{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}\n\n"+answerEvent(q.ID))
		},
		"with comments in it": func(w http.ResponseWriter, q question) {
			streams(w, fmt.Sprintf(":\n\n: ping\n\ndata: {\"jsonrpc\":\"2.0\",\n:\n: ping\ndata: "+
				"\"id\":%s,%s}\n\n", q.ID, bought))
		},
		"its id in another way": func(w http.ResponseWriter, q question) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s.0,%s}`, q.ID, bought)
		},
		"twice": func(w http.ResponseWriter, q question) {
			streams(w, answerEvent(q.ID)+fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,"+
				"\"error\":{\"code\":1,\"message\":\"no\"}}\n\n", q.ID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &plain{get: noStream}
			server.call = func(w http.ResponseWriter, _ *http.Request, q question) { call(w, q) }
			s := serve(t, server.ServeHTTP)
			m := reach(t, Options{}, s.URL)
			for range 2 {
				a := must.Get(m.Present(within(t, time.Minute), toolCall(s.URL+"#paid"), aPayment))(t)
				require.Equal(t, http.StatusOK, a.Status)
				require.JSONEq(t, `{"content":[{"type":"text","text":"bought"}]}`, string(a.Content))
			}
			require.EqualValues(t, 1, server.opened.Load())
		})
	}
}

// A server that was started again between the price and the payment knows nobody. The payment does
// not leave again by itself; the next time, it leaves in a session that is known.
func TestAPaidCallToARestartedServer(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		server := &plain{get: noStream}
		var paid atomic.Int64
		server.call = func(w http.ResponseWriter, r *http.Request, q question) {
			paid.Add(1)
			if server.forgotten.Load() > 0 && r.Header.Get("Mcp-Session-Id") == "1" {
				http.Error(w, "no valid session", status)
				return
			}
			says(w, q, bought)
		}
		s := serve(t, server.ServeHTTP)
		m := reach(t, Options{}, s.URL)
		must.Get(m.Ask(within(t, time.Minute), toolCall(s.URL+"#free")))(t)
		server.forgotten.Add(1)
		for i, want := range []int{status, http.StatusOK} {
			a := must.Get(m.Present(within(t, time.Minute), toolCall(s.URL+"#paid"), aPayment))(t)
			require.Equal(t, want, a.Status)
			require.EqualValues(t, 2+i, paid.Load())
		}
		require.EqualValues(t, 2, server.opened.Load())
	}
}

// On the old wire all answers come on one stream: neither a neighbour that is refused ends it, nor
// one that opens the session again.
func TestOnTheOldWireAPaidCallOutlivesItsNeighbours(t *testing.T) {
	arrived, over := make(chan struct{}), make(chan struct{})
	o := mcp.NewServer(&mcp.Implementation{Name: "old", Version: "1"}, nil)
	o.AddTool(&mcp.Tool{Name: "paid", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			close(arrived)
			select {
			case <-over:
			case <-ctx.Done():
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "bought"}}}, nil
		})
	old := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return o }, nil)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("neighbour")) || bytes.Contains(body, []byte("cancelled")) {
			http.Error(w, "away", http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		old.ServeHTTP(w, r)
	})
	t.Cleanup(s.CloseClientConnections)
	m := reach(t, Options{}, s.URL)
	go func() {
		defer close(over)
		<-arrived
		for range 2 {
			_, err := m.Ask(within(t, time.Minute), toolCall(s.URL+"/old#neighbour"))
			assert.Equal(t, x402.ServerUnavailable, code(err), "%v", err)
		}
		_, _ = m.Present(within(t, time.Minute), Request{Method: Initialize, URL: s.URL + "/old"}, aPayment)
	}()
	a := must.Get(m.Present(within(t, time.Minute), toolCall(s.URL+"/old#paid"), aPayment))(t)
	require.Contains(t, string(a.Content), "bought")
}
