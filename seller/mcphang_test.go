package seller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// hanging is an MCP server that leaves unanswered what a test says, and answers all else.
type hanging struct {
	at        map[string]http.HandlerFunc // by HTTP method, "POST" aside, or by method of MCP
	discovers bool                        // it speaks MCP 2026-07-28
	stuck     atomic.Bool                 // at counts; false: the server has got over it
	opened    atomic.Int64
}

func (s *hanging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := question{}
	q.body, _ = io.ReadAll(r.Body)
	_ = json.Unmarshal(q.body, &q)
	does := r.Method
	if does == http.MethodPost {
		does = q.Method
	}
	if hang := s.at[does]; hang != nil && s.stuck.Load() {
		hang(w, r)
		return
	}
	const tools = `"capabilities":{"tools":{"listChanged":true}}`
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case q.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case does == "initialize":
		w.Header().Set("Mcp-Session-Id", fmt.Sprint(s.opened.Add(1)))
		says(w, q, `"result":{"protocolVersion":"2025-11-25",`+tools+
			`,"serverInfo":{"name":"x","version":"1"}}`)
	case does == "server/discover" && s.discovers:
		says(w, q, `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],`+tools+
			`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x","version":"1"}}}`)
	case does == "tools/list":
		says(w, q, `"result":{"resultType":"complete","tools":[{"name":"free","inputSchema":{"type":"object"}}]}`)
	case does == "tools/call":
		says(w, q, bought)
	default:
		says(w, q, `"error":{"code":-32601,"message":"no"}`)
	}
}

func nothing(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func headersAlone(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func again(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func refuses(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }

const (
	atOnce  = time.Minute            // for what is answered; only a machine under load needs so long
	briefly = 300 * time.Millisecond // for what is not
)

// inTime runs what has to end by its deadline, and tells how it ended.
func inTime(t *testing.T, deadline time.Duration, ask func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- ask(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(deadline + time.Minute):
		require.Fail(t, "it goes on past its deadline")
		return nil
	}
}

// No server makes a call last longer than its deadline, whatever it leaves unanswered; what is
// optional is not waited for; the next call finds no trace of it; and nothing is left running.
func TestAServerThatHangs(t *testing.T) {
	const stream, plainJSON = "text/event-stream", "application/json"
	moved := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(300 * time.Millisecond)
		http.Redirect(w, r, r.URL.Path+"x", http.StatusTemporaryRedirect)
	}
	brokenOff := func(w http.ResponseWriter, _ *http.Request) { streams(w, "id: 1\nretry: 1\ndata:\n\n") }
	type at map[string]http.HandlerFunc
	calls := func(hang http.HandlerFunc) at { return at{"tools/list": hang, "tools/call": hang} }
	old := func(hang http.HandlerFunc) at {
		return at{"server/discover": refuses, "initialize": refuses, "GET": hang}
	}
	type row struct {
		at        at
		discovers bool
		isServed  bool // in spite of it
	}
	listen := func(hang http.HandlerFunc) row {
		return row{at: at{"subscriptions/listen": hang}, discovers: true, isServed: true}
	}
	for name, c := range map[string]row{
		"its own stream: nothing":         {at: at{"GET": nothing}, isServed: true},
		"its own stream: headers":         {at: at{"GET": headersAlone(stream)}, isServed: true},
		"its own stream: keep-alives":     {at: at{"GET": again(stream, ": \n\n")}, isServed: true},
		"its own stream: a page":          {at: at{"GET": again("text/html", "<p>")}, isServed: true},
		"its own stream of 2026: nothing": listen(nothing),
		"its own stream of 2026: headers": listen(headersAlone(stream)),
		"its own stream of 2026: JSON":    listen(headersAlone(plainJSON)),
		"the end":                         {at: at{"DELETE": nothing}, isServed: true},
		"the end: headers":                {at: at{"DELETE": headersAlone(plainJSON)}, isServed: true},
		"initialize":                      {at: at{"initialize": nothing}},
		"initialize: headers":             {at: at{"initialize": headersAlone(plainJSON)}},
		"initialize: keep-alives":         {at: at{"initialize": again(stream, ": \n\n")}},
		"initialized":                     {at: at{"notifications/initialized": nothing}},
		"discover, and all the end":       {at: at{"server/discover": nothing, "DELETE": nothing}},
		"a call":                          {at: calls(nothing)},
		"a call: JSON's headers":          {at: calls(headersAlone(plainJSON))},
		"a call: JSON for ever":           {at: calls(again(plainJSON, " "))},
		"a call: a stream's headers":      {at: calls(headersAlone(stream))},
		"a call: keep-alives":             {at: calls(again(stream, ": \n\n"))},
		"a call, and its cancellation": {at: at{"tools/list": nothing, "tools/call": nothing,
			"notifications/cancelled": nothing, "DELETE": nothing}},
		"a call: a stream that is never taken up": {at: at{"GET": nothing, "tools/list": brokenOff,
			"tools/call": brokenOff}},
		"redirects":                    {at: at{"server/discover": moved, "initialize": moved}},
		"on the old wire":              {at: old(nothing)},
		"on the old wire: headers":     {at: old(headersAlone(stream))},
		"on the old wire: keep-alives": {at: old(again(stream, ": \n\n"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // TestMain sees whether anything is left running
			server := &hanging{at: c.at, discovers: c.discovers}
			s := httptest.NewServer(server)
			m := New(Options{Loopback: []string{strings.TrimPrefix(s.URL, "http://")}})
			defer func() {
				s.CloseClientConnections()
				s.Close()
			}()
			defer func() {
				require.NoError(t, inTime(t, briefly, func(context.Context) error { return m.Close() }))
			}()

			list := func(ctx context.Context) error { _, err := m.Tools(ctx, s.URL); return err }
			call := func(ctx context.Context) error {
				return must.Err(m.Ask(ctx, toolCall(s.URL+"#free")))
			}
			pay := func(ctx context.Context) error {
				return must.Err(m.Present(ctx, toolCall(s.URL+"#paid"), aPayment))
			}
			if c.at["tools/call"] != nil { // that it leaves takes a session
				require.NoError(t, inTime(t, atOnce, list))
			}
			server.stuck.Store(true)
			asks := map[string]func(context.Context) error{"list": list, "call": call, "pay": pay}
			for what, ask := range asks {
				if c.isServed {
					require.NoError(t, inTime(t, atOnce, ask), what)
					continue
				}
				err := inTime(t, briefly, ask)
				require.Error(t, err, what)
				send, isPayment := errors.AsType[*SendError](err)
				if c.at["tools/call"] != nil && isPayment {
					require.True(t, send.Sent, "what left is not called unsent")
				}
				if c.at["tools/call"] == nil && isPayment {
					require.False(t, send.Sent, "no payment left")
				}
				require.Contains(t, []x402.Code{x402.Timeout, x402.RedirectRefused, x402.ServerUnavailable},
					code(err), "%s: %v", what, err)
			}
			server.stuck.Store(false)
			require.NoError(t, inTime(t, atOnce, list), "the next call")
			require.NoError(t, inTime(t, atOnce, call), "the next call")
		})
	}
}

// A session that has ended is opened again at once, though its end is never answered.
func TestAnUnansweredEndHoldsUpNothing(t *testing.T) {
	var forgotten, ended atomic.Bool
	never := func(w http.ResponseWriter, r *http.Request) {
		nothing(w, r)
		ended.Store(true)
	}
	server := &hanging{at: map[string]http.HandlerFunc{"DELETE": never}}
	server.stuck.Store(true)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if forgotten.Load() && r.Header.Get("Mcp-Session-Id") == "1" && r.Method == http.MethodPost {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		server.ServeHTTP(w, r)
	})
	m := reach(t, Options{}, s.URL)
	call := func(ctx context.Context) error {
		return must.Err(m.Ask(ctx, toolCall(s.URL+"#free")))
	}
	require.NoError(t, inTime(t, atOnce, call))
	forgotten.Store(true)
	require.NoError(t, inTime(t, atOnce, call))
	require.False(t, ended.Load(), "the end is still asked for")
	require.EqualValues(t, 2, server.opened.Load())
	s.CloseClientConnections()
}

// A host that takes connections and says nothing, and one that never reads.
func TestAHostThatSaysNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	m := New(Options{Loopback: []string{l.Addr().String()}})
	for range 3 {
		err := inTime(t, briefly, func(ctx context.Context) error {
			return must.Err(m.Tools(ctx, "http://"+l.Addr().String()))
		})
		require.Equal(t, x402.Timeout, code(err), "%v", err)
	}
	require.NoError(t, inTime(t, briefly, func(context.Context) error { return m.Close() }))
	require.NoError(t, l.Close())
	require.NoError(t, goleak.Find(before))
}

// A program that never answers, or never reads, makes no call last longer, and the next call finds one
// that was started anew.
func TestAProgramThatHangs(t *testing.T) {
	const answers = `
		while read -r line; do
			id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
			case "$line" in
			*'"initialize"'*) r='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
				r=$r'"serverInfo":{"name":"x","version":"1"}}';;
			*'"tools/list"'*) r='{"tools":[]}';;
			*'"tools/call"'*) r='{"content":[]}';;
			*) r=;;
			esac
			[ -n "$id" ] && [ -n "$r" ] && printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
			[ -n "$id" ] && [ -z "$r" ] &&
				printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"
			case "$line" in *'"notifications/initialized"'*) [ -e "$DONE" ] || { : >"$DONE"; STUCK; };; esac
		done`
	for name, script := range map[string]string{
		"never answers":   `[ -e "$DONE" ] || { : >"$DONE"; while read -r line; do :; done; exit; }` + answers,
		"never reads":     `[ -e "$DONE" ] || { : >"$DONE"; exec sleep 600; }` + answers,
		"reads no more":   strings.ReplaceAll(answers, "STUCK", "exec sleep 600"),
		"answers no more": strings.ReplaceAll(answers, "STUCK", "while read -r line; do :; done; exit"),
		"outlives its end": `trap "" TERM; ` +
			strings.ReplaceAll(answers, "STUCK", "while :; do sleep 600; done"),
		"closes its own pipe": strings.ReplaceAll(answers, "STUCK", "exec <&-; sleep 600"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := t.TempDir() + "/done"
			m := New(Options{silence: time.Second / 2, Servers: map[string]Server{"x": {
				Command: []string{"/bin/sh", "-c", strings.ReplaceAll(script, "STUCK", ":")},
				Env:     []string{"PATH=" + os.Getenv("PATH"), "DONE=" + done},
			}}})
			long := json.RawMessage(`{"text":"` + strings.Repeat("x", 200<<10) + `"}`)
			call := func(ctx context.Context) error {
				return must.Err(m.Ask(ctx, Request{Method: CallTool, URL: "mcp://x#free", Body: long}))
			}
			err := inTime(t, time.Second, call)
			require.Contains(t, []x402.Code{x402.Timeout, x402.SessionTerminated}, code(err), "%v", err)
			isServed := func() bool { return inTime(t, atOnce, call) == nil }
			require.Eventually(t, isServed, time.Minute, time.Millisecond)
			require.NoError(t, m.Close())
		})
	}
}
