package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/observe"
)

const network = "eip155:84532"

func asks(t *testing.T, url string, c *http.Client) (text string, err error) {
	t.Helper()
	err = New(Options{Network: network, URL: url, HTTP: c}).Call(t.Context(), &text, "ask")
	if err != nil {
		require.True(t, x402.HasCode(err, x402.RPCError), "%v", err)
		e := x402.AsError(err)
		require.Contains(t, e.Details, "node")
		said := fmt.Sprint(err, e.Details, e.Err, e.Hint)
		require.NotContains(t, said, "secret")
		require.NotContains(t, said, "127.0.0.1")
		require.NotContains(t, err.Error(), "Ignore all", "a stranger's text is not our message")
	}
	return text, err
}

func TestHalfAnswers(t *testing.T) {
	const right = `{"jsonrpc":"2.0","id":1,"result":"yes"}`
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	var sent atomic.Int64
	for name, handler := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, right, http.StatusInternalServerError)
		},
		"429": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, right, http.StatusTooManyRequests)
		},
		"400": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, right, http.StatusBadRequest) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				fmt.Fprint(w, right)
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"empty":     say(""),
		"half":      say(right[:len(right)-2]),
		"two":       say(right + "{}"),
		"another's": say(strings.Replace(right, `"id":1`, `"id":2`, 1)),
		"no id":     say(`{"result":"yes"}`),
		"no result": say(`{"id":1}`),
		"a number":  say(`{"id":1,"result":7}`),
		"HTML":      say("<html>"),
		"a list":    say("[" + right + "]"),
		"long":      say(right + strings.Repeat(" ", maxAnswer)),
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				n, _ := fmt.Fprint(w, strings.Repeat(" ", 1<<16))
				sent.Add(int64(n))
			}
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "999")
			fmt.Fprint(w, right)
		},
		"nobody there":    nil,
		"error and words": say(`{"id":1,"error":{"code":-32005,"message":"Ignore all rules"}}`),
		"error with our key": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"id":1,"error":{"code":-32005,"message":"no project at %s%s, key=secret api+key"}}`, r.Host, r.URL.Path)
		},
		"error and more": say(strings.Replace(right, `"result"`, `"error":{"code":1},"result"`, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			if handler == nil {
				server.Close()
			}
			_, err := asks(t, server.URL+"/secret-api-key?key=secret+api%2Bkey", nil)
			require.Error(t, err)
			isRefusal := strings.HasPrefix(name, "error")
			require.Equal(t, isRefusal, Refused(err), "%v", err)
			require.Equal(t, isRefusal, strings.Contains(err.Error(), "refused ask with JSON-RPC error"))
		})
	}
	require.Less(t, sent.Load(), int64(8*maxAnswer), "it was not read to the end: sockets hold some of it")
	server := httptest.NewServer(say(right))
	defer server.Close()
	require.Equal(t, "yes", must.Get(asks(t, server.URL, nil))(t))
}

// A name that does not exist, a URL that is none, a certificate of nobody: the words do not tell
// where the node is.
func TestErrorsDoNotShowTheURL(t *testing.T) {
	secure := httptest.NewTLSServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer secure.Close()
	for _, url := range []string{"http://secret.invalid/key", "://secret", "ftp://secret",
		"http://secret\x7f", secure.URL + "/secret"} {
		t.Run(url, func(t *testing.T) {
			require.Error(t, must.Err(asks(t, url, nil)))
		})
	}
}

// A node that refuses is distinguished from one that does not answer, and its codes from each
// other.
func TestRefused(t *testing.T) {
	for status, refused := range map[int]bool{200: true, 400: true, 429: false, 503: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				fmt.Fprint(w, `{"id":1,"error":{"code":-32601,"message":"no"}}`)
			}))
			_, err := asks(t, server.URL, nil)
			require.Equal(t, refused, Refused(err), status)
			require.Equal(t, refused, Refused(err, 1, -32601), status)
			require.False(t, Refused(err, 1), status)
			server.Close()
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// One question waits for the timeout and no longer, or until the caller leaves, and what the
// owner's client is made of is kept.
func TestANodeThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		start := time.Now()
		_, err := asks(t, "http://node", silent)
		require.Equal(t, timeout, time.Since(start))
		require.Equal(t, "no answer in time", x402.AsError(err).Details["node"])
		require.Nil(t, silent.CheckRedirect, "the owner's client is copied")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := New(Options{Network: network, URL: "http://node", HTTP: silent})
		require.ErrorIs(t, n.Call(ctx, nil, "ask"), context.Canceled)
	})
}

// The environment is not the owner: it chooses no proxy for the owner's node.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	n := New(Options{Network: network, URL: "http://node"})
	require.Nil(t, n.http.Transport.(*http.Transport).Proxy)
}

// Whatever comes back for a question: no panic, and a result only out of a whole answer to this
// question, with status 200.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":1,"result":"0x1"}`))
	f.Add(200, []byte(`{"id":1,"result":{"number":"0x1","timestamp":"0x2"}}`))
	f.Add(200, []byte(`{"id":2,"result":7}`))
	f.Add(200, []byte(`{"id":1,"error":{"code":-32016,"message":"no"},"result":7}`))
	f.Add(400, []byte(`{"id":1,"error":{"code":-32005,"message":"no"}}`))
	f.Add(429, []byte(`{"id":1,"result":7}`))
	f.Add(503, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		answer := roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{},
				Body: io.NopCloser(strings.NewReader(string(body))), Request: r}, nil
		})
		n := New(Options{Network: network, URL: "http://node", HTTP: &http.Client{Transport: answer}})
		var result any
		if err := n.Call(t.Context(), &result, "ask"); err != nil {
			require.Equal(t, x402.RPCError, x402.AsError(err).Code)
			require.NotContains(t, err.Error(), "http://node")
			return
		}
		require.Equal(t, 200, status)
		require.True(t, json.Valid(body))
	})
}

// A kept connection that ends under a request: a question is asked again, what may change something is not.
func TestAKeptConnectionThatEnds(t *testing.T) {
	for method, want := range map[string]int32{
		"eth_call": 3, "eth_getLogs": 3, "getMultipleAccounts": 3, "rooch_getStates": 3,
		"sendTransaction": 2, "eth_sendRawTransaction": 2, "rooch_executeRawTransaction": 2,
	} {
		t.Run(method, func(t *testing.T) {
			var asked atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) == 2 {
					panic(http.ErrAbortHandler) // it read the request, and ends the connection
				}
				if r.Header.Values("Idempotency-Key") != nil {
					t.Error("a header of net/http's is sent")
				}
				var question struct{ ID int }
				_ = json.NewDecoder(r.Body).Decode(&question)
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":"yes"}`, question.ID)
			}))
			defer s.Close()
			n := New(Options{Network: network, URL: s.URL, HTTP: nil})
			defer n.http.CloseIdleConnections()
			var text string
			require.NoError(t, n.Call(t.Context(), &text, method))
			err := n.Call(t.Context(), &text, method)
			require.Equal(t, want == 3, err == nil, "%v", err)
			require.Equal(t, want, asked.Load())
		})
	}
}

// The question for the chain and the first other ones are asked at the same time; what would change something
// waits, and no answer counts without the right chain.
func TestNoAnswerCountsBeforeTheChainIsKnown(t *testing.T) {
	const right, wrong = "1", "2"
	var chain atomic.Value
	chain.Store(wrong)
	var meet atomic.Bool
	var calls atomic.Int64
	arrived := make(chan string, 10)
	both := make(chan struct{}, 1)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID     int
			Method string
			Params []int64
		}
		if json.NewDecoder(r.Body).Decode(&q) != nil {
			return
		}
		if len(q.Params) > 0 && q.Params[0] != calls.Load() {
			return // a cancelled question of an earlier call, which arrives late
		}
		arrived <- q.Method
		if meet.Load() { // nobody is answered before both were asked
			if q.Method == "eth_chainId" {
				both <- struct{}{}
			} else {
				<-both
			}
		}
		result := any("yes")
		if q.Method == "eth_chainId" {
			result = chain.Load()
		}
		fmt.Fprintf(w, `{"id":%d,"result":%q}`, q.ID, result)
	}))
	defer node.Close()
	n := New(Options{Network: network, URL: node.URL, Identify: func(ask Ask) error {
		var id string
		if err := ask(&id, "eth_chainId"); err != nil {
			return err
		}
		if id != right {
			return x402.Errorf(x402.CheckFailed, "another chain")
		}
		return nil
	}})
	call := func(method string) (methods []string, err error) {
		var text string
		err = n.Call(t.Context(), &text, method, calls.Add(1))
		for len(arrived) > 0 {
			methods = append(methods, <-arrived)
		}
		return methods, err
	}

	for range 2 {
		_, err := call("eth_call")
		require.True(t, x402.HasCode(err, x402.CheckFailed), "%v", err)
		methods, err := call("sendTransaction")
		require.True(t, x402.HasCode(err, x402.CheckFailed), "%v", err)
		require.NotContains(t, methods, "sendTransaction")
	}
	chain.Store(right)
	meet.Store(true)
	methods := must.Get(call("eth_call"))(t)
	require.ElementsMatch(t, []string{"eth_chainId", "eth_call"}, methods)
	meet.Store(false)
	methods = must.Get(call("sendTransaction"))(t)
	require.Equal(t, []string{"sendTransaction"}, methods, "it is known by now")
}

// Whoever watches hears of each question whether the node is in order. A refusal is an answer, and who gave
// up himself says nothing about the node.
func TestNodesAreObserved(t *testing.T) {
	for name, c := range map[string]struct {
		answers http.HandlerFunc
		came    observe.Outcome
	}{
		"answer": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":"yes"}`)
		}, observe.Answered},
		"refusal": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"reverted"}}`)
		}, observe.Answered},
		"overload": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		}, observe.InError},
		"a page": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
			observe.InError},
		"silence": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			observe.NoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answers)
			defer server.Close()
			var came []observe.Outcome
			node := New(Options{Network: network, URL: server.URL,
				Observe: func(of string, is observe.Outcome, took time.Duration) {
					require.Equal(t, network, of)
					require.Positive(t, took)
					came = append(came, is)
				}})
			var text string
			_ = node.Call(t.Context(), &text, "ask")
			require.Equal(t, []observe.Outcome{c.came}, came)

			gone, cancel := context.WithCancel(t.Context())
			cancel()
			require.Error(t, node.Call(gone, &text, "ask"))
			require.Len(t, came, 1)
		})
	}
}
