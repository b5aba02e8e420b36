package seller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
)

// maxQuestions is how many requests of a server's may wait for our answer (which is no). Honest
// ones ask one thing at a time.
const maxQuestions = 64

// recorded is a transport whose messages are recorded.
type recorded struct {
	mcp.Transport
	isLast bool // nothing but the connection itself comes after the recorder
	heard  *atomic.Int64
}

func (t recorded) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &recorder{
		Connection: c, isLast: t.isLast, heard: t.heard,
		waiting: map[jsonrpc.ID]*exchange{}, questions: map[jsonrpc.ID]bool{},
	}, nil
}

// recorder notes for exchanges what passes a connection on which every message goes through Read
// and Write.
type recorder struct {
	mcp.Connection
	isLast    bool
	heard     *atomic.Int64 // counts messages
	mu        sync.Mutex
	waiting   map[jsonrpc.ID]*exchange
	questions map[jsonrpc.ID]bool // the server's, without our answer
}

// Write implements mcp.Connection.
func (t *recorder) Write(ctx context.Context, m jsonrpc.Message) error {
	switch m := m.(type) {
	case *jsonrpc.Response:
		t.mu.Lock()
		delete(t.questions, m.ID)
		t.mu.Unlock()
	case *jsonrpc.Request:
		e := exchangeOf(ctx, m.Method)
		if e == nil || !m.IsCall() {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		t.mu.Lock()
		t.waiting[m.ID] = e
		t.mu.Unlock()
		context.AfterFunc(ctx, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.waiting, m.ID)
		})
		if t.isLast {
			if err := e.markLeaving(); err != nil {
				return err
			}
			e.sent.Store(true)
		}
	}
	return t.Connection.Write(ctx, m)
}

// Read implements mcp.Connection. A flood of requests to us goes no further than here.
func (t *recorder) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := t.Connection.Read(ctx)
		if err != nil {
			return m, err
		}
		t.heard.Add(1)
		switch m := m.(type) {
		case *jsonrpc.Response:
			t.mu.Lock()
			e := t.waiting[m.ID]
			delete(t.waiting, m.ID)
			t.mu.Unlock()
			if e != nil {
				refused, _ := errors.AsType[*jsonrpc.Error](m.Error)
				e.Answered(m.Result, refused)
			}
		case *jsonrpc.Request:
			passes := isHandled(m.Method)
			if m.IsCall() {
				passes = t.mayAsk(m.ID)
			}
			if !passes {
				continue
			}
		}
		return m, nil
	}
}

// isHandled reports whether anybody here listens to a notification. A flood of others goes no
// further, too.
func isHandled(notification string) bool {
	return !strings.HasPrefix(notification, "notifications/message") &&
		!strings.HasPrefix(notification, "notifications/resources/")
}

func (t *recorder) mayAsk(id jsonrpc.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.questions) >= maxQuestions || t.questions[id] {
		return false
	}
	t.questions[id] = true
	return true
}

// sessionTransport carries the messages of a session over HTTP: to its own origin only, on
// connections of HTTP's, no redirect followed with anything that was paid for, and within the
// limits. What goes wrong with one call is kept from the others by mcpconn.IsolatingTransport.
type sessionTransport struct {
	isolating mcpconn.IsolatingTransport
	client    *httpClient
	at        *url.URL                // the endpoint
	moved     atomic.Pointer[url.URL] // where the endpoint was redirected to
	session   *session
}

// newSessionTransport makes one; twoStreams is SSE of 2024-11-05.
func newSessionTransport(client *httpClient, at *url.URL, s *session, twoStreams bool) *sessionTransport {
	t := &sessionTransport{client: client, at: at, session: s}
	t.isolating = mcpconn.IsolatingTransport{
		Send: t.send, Quit: s.quit, TwoStreams: twoStreams,
		Observe: func(ctx context.Context, method string) mcpconn.Observer {
			if e := exchangeOf(ctx, method); e != nil {
				return e
			}
			return nil
		},
	}
	return t
}

func (t *sessionTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete && t.session.unused() != nil { // the server would end its calls with it
		return &http.Response{StatusCode: http.StatusAccepted, Request: r, Header: http.Header{},
			Body: http.NoBody}, nil
	}
	return t.isolating.RoundTrip(r)
}

// send makes one exchange for mcpconn. Its error is one of the outside.
func (t *sessionTransport) send(r *http.Request, body []byte, o mcpconn.Observer) (*http.Response, error) {
	if origin(r.URL) != origin(t.at) {
		return nil, refuse(r.URL.String(), "the server wants its messages at another origin")
	}
	e, _ := o.(*exchange) // nil where nobody observes it
	response, err := t.follow(r, body, e)
	if err != nil {
		return nil, refine(r.Context(), r.URL, err)
	}
	return response, nil
}

// follow sends a request. What was not paid for follows a redirect within the origin that keeps the
// method: many servers answer /mcp with one to /mcp/.
func (t *sessionTransport) follow(r *http.Request, body []byte, e *exchange) (*http.Response, error) {
	at := r.URL
	if to := t.moved.Load(); to != nil && *at == *t.at {
		at = to
	}
	for hops := 0; ; hops++ {
		out := r.Clone(r.Context())
		out.URL, out.Host = at, ""
		out.Body = http.NoBody
		if len(body) > 0 {
			sendOnce(out, body)
		}
		out.Header.Set("User-Agent", t.client.options.UserAgent)
		out.Header.Set("Accept-Encoding", "identity")
		pays := false
		if e != nil && r.Method == http.MethodPost {
			if err := e.markLeaving(); err != nil {
				return nil, err
			}
			pays = e.pays()
			if e.with.Header != "" {
				// not canonical: the wire spelling of the protocol
				out.Header[e.with.Header] = []string{e.with.Value}
			}
			trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { e.sent.Store(true) }}
			out = out.WithContext(httptrace.WithClientTrace(r.Context(), trace))
		}
		response, err := t.client.transport.RoundTrip(out)
		if err != nil || pays {
			return response, err
		}
		next, err := t.client.redirect(Request{Method: r.Method}, at, response, hops)
		if next == "" && err == nil {
			return response, nil
		}
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		at, err = t.client.checkURL(next)
		if err != nil {
			return nil, err
		}
		t.moved.Store(at)
	}
}
