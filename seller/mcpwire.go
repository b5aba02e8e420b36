package seller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
)

// What the SDK gives back of an answer is its own types, in which unknown members are lost:
// resultType "payment_required" with what is asked, and the very bytes of an option. So each call
// carries an exchange in its context, and whatever the call goes through notes there what left and
// what came: tap, for commands and old SSE, and wire, for HTTP.

// exchange is one request and what came of it.
type exchange struct {
	method string
	with   x402.Attachment
	once   atomic.Bool // its request was handed to the wire
	sent   atomic.Bool // something of it may have left

	mu     sync.Mutex
	result json.RawMessage // as it came
	// the server's own, as it came: the SDK puts errors of the connection into the same form
	refused *jsonrpc.Error
	// of the endpoint itself: an answer that is no message, or the headers of one that is
	http    *Answer
	missing bool // the endpoint does not know the session (any more), and did nothing
	// what the SDK says, where nothing came; or the endpoint's refusal, where nothing was paid
	failure error
	heard   chan struct{} // closed when result or refused came
	coming  *hear         // the answer over HTTP, as far as it came
	stop    func()        // ends this call alone
}

func newExchange(method string, with x402.Attachment) *exchange {
	return &exchange{method: method, with: with, heard: make(chan struct{})}
}

func (e *exchange) pays() bool { return e.with.Header != "" || e.with.Meta != nil }

type exchangeKey struct{}

func (e *exchange) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

// exchangeOf is the exchange whose own request this is; nil for everything else that goes out in
// its context (a cancellation).
func exchangeOf(ctx context.Context, method string) *exchange {
	if e, ok := ctx.Value(exchangeKey{}).(*exchange); ok && e.method == method {
		return e
	}
	return nil
}

var errTwice = errors.New("a request with a payment would have left a second time")

// leave is called right before the request leaves.
func (e *exchange) leave() error {
	if e.once.Swap(true) && e.pays() {
		return errTwice
	}
	return nil
}

// came notes the answer; the first one counts.
func (e *exchange) came(result json.RawMessage, refused *jsonrpc.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.result == nil && e.refused == nil {
		e.result, e.refused = bytes.Clone(result), refused
		close(e.heard)
	}
}

// fail notes why there is no answer, unless that is known.
func (e *exchange) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure == nil {
		e.failure = err
	}
}

// hearOut waits for the rest of an answer that comes over HTTP. When something that is no call
// ended the session (a list of tools), the SDK lets go of all its calls; but their answers are
// requests of their own, and still come.
func (e *exchange) hearOut(ctx context.Context, quit <-chan struct{}) {
	e.mu.Lock()
	coming, heard := e.coming, e.result != nil || e.refused != nil
	e.mu.Unlock()
	if coming == nil || heard {
		return
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, coming)
	}()
	select {
	case <-e.heard:
	case <-over:
	case <-ctx.Done():
	case <-quit:
	}
}

// maxAsked is how many requests of a server's may wait for our answer (which is no). Honest ones
// ask one thing at a time.
const maxAsked = 64

// tap listens to a connection on which every message goes through Read and Write.
type tap struct {
	mcp.Connection
	last    bool // nothing but the wire comes after it
	mu      sync.Mutex
	waiting map[jsonrpc.ID]*exchange
	asked   map[jsonrpc.ID]bool
}

func newTap(c mcp.Connection, last bool) *tap {
	return &tap{Connection: c, last: last, waiting: map[jsonrpc.ID]*exchange{}, asked: map[jsonrpc.ID]bool{}}
}

// Write implements mcp.Connection.
func (t *tap) Write(ctx context.Context, m jsonrpc.Message) error {
	switch m := m.(type) {
	case *jsonrpc.Response:
		t.mu.Lock()
		delete(t.asked, m.ID)
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
		if t.last {
			if err := e.leave(); err != nil {
				return err
			}
			e.sent.Store(true)
		}
	}
	return t.Connection.Write(ctx, m)
}

// Read implements mcp.Connection. A flood of requests to us goes no further than here.
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := t.Connection.Read(ctx)
		if err != nil {
			return m, err
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			t.mu.Lock()
			e := t.waiting[m.ID]
			delete(t.waiting, m.ID)
			t.mu.Unlock()
			if e != nil {
				var refused *jsonrpc.Error
				_ = errors.As(m.Error, &refused)
				e.came(m.Result, refused)
			}
		case *jsonrpc.Request:
			if m.IsCall() && !t.mayAsk(m.ID) || !m.IsCall() && !isHeard(m.Method) {
				continue
			}
		}
		return m, nil
	}
}

// isHeard reports whether anybody here listens to a notification. A flood of others goes no
// further, too.
func isHeard(notification string) bool {
	return !strings.HasPrefix(notification, "notifications/message") &&
		!strings.HasPrefix(notification, "notifications/resources/")
}

func (t *tap) mayAsk(id jsonrpc.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.asked) >= maxAsked || t.asked[id] {
		return false
	}
	t.asked[id] = true
	return true
}

// wire carries the messages of a session over HTTP: to its own origin only, on connections of
// HTTP's, no redirect followed with anything that was paid for, and within the limits.
type wire struct {
	http     *HTTP
	endpoint *url.URL
	moved    atomic.Pointer[url.URL] // where the endpoint was redirected to
	old      bool                    // answers come on another stream (2024-11-05)
	session  *session
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if origin(r.URL) != origin(w.endpoint) {
		closeBody(r)
		return nil, refuse(r.URL.String(), "the server wants its messages at another origin")
	}
	body, err := io.ReadAll(bodyOf(r))
	closeBody(r)
	if err != nil {
		return nil, err
	}
	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &call) // our own message; a GET has none
	var e *exchange
	if call.ID != nil {
		e = exchangeOf(r.Context(), call.Method)
	}
	if r.Method == http.MethodDelete && w.session.unused() != nil { // the server would end its calls with it
		return taken(r), nil
	}
	response, err := w.send(r, body, e)
	if isWord := r.Method == http.MethodPost && (call.ID == nil || call.Method == ""); isWord &&
		call.Method != "notifications/initialized" {
		if err == nil {
			_ = response.Body.Close()
		}
		return taken(r), nil // a cancellation, or our no: whether it arrived is nobody's end
	}
	if err != nil {
		err = refine(r.Context(), r.URL, err)
		w.stop(e, err)
		return nil, err
	}
	return w.listen(r, response, e, call.ID), nil
}

// stop ends one call on the old wire, for what the SDK would take for the end of the session there.
func (w *wire) stop(e *exchange, err error) {
	if !w.old || e == nil || e.stop == nil {
		return
	}
	if err != nil {
		e.fail(err)
	}
	e.stop()
}

// send makes the exchange. What was not paid for follows a redirect within the origin that keeps
// the method: many servers answer /mcp with one to /mcp/.
func (w *wire) send(r *http.Request, body []byte, e *exchange) (*http.Response, error) {
	at := r.URL
	if to := w.moved.Load(); to != nil && *at == *w.endpoint {
		at = to
	}
	for hops := 0; ; hops++ {
		out := r.Clone(r.Context())
		out.URL, out.Host, out.Body, out.ContentLength = at, "", io.NopCloser(bytes.NewReader(body)),
			int64(len(body))
		out.Header.Set("User-Agent", w.http.options.UserAgent)
		out.Header.Set("Accept-Encoding", "identity")
		pays := false
		if e != nil && r.Method == http.MethodPost {
			if err := e.leave(); err != nil {
				return nil, err
			}
			if pays = e.pays(); e.with.Header != "" {
				// not canonical: the wire spelling of the protocol
				out.Header[e.with.Header] = []string{e.with.Value}
			}
			out = out.WithContext(httptrace.WithClientTrace(r.Context(),
				&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
					e.sent.Store(true)
				}}))
		}
		response, err := w.http.wire.RoundTrip(out)
		if err != nil || pays {
			return response, err
		}
		next, err := w.http.redirect(Request{Method: r.Method}, at, response, hops)
		if next == "" && err == nil {
			return response, nil
		}
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		if at, err = w.http.checkURL(next); err != nil {
			return nil, err
		}
		w.moved.Store(at)
	}
}

func bodyOf(r *http.Request) io.Reader {
	if r.Body == nil {
		return bytes.NewReader(nil)
	}
	return r.Body
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// listen notes what came for an exchange, and hides from the SDK what would end the session for
// all: an endpoint that asks for payment, refuses, says what is no message, or names another
// session.
func (w *wire) listen(r *http.Request, response *http.Response, e *exchange,
	id json.RawMessage) *http.Response {
	kind, _, _ := strings.Cut(mediaType(response.Header.Get("Content-Type")), ";")
	if e == nil {
		if r.Method == http.MethodGet && !w.old && response.StatusCode == http.StatusOK &&
			kind == eventStream {
			response.Body = &hear{wire: w, request: r, body: response.Body, left: maxStream, isStream: true}
		}
		return response
	}
	if e.method != Initialize {
		response.Header.Del(sessionHeader)
	}
	asks := response.StatusCode == http.StatusPaymentRequired ||
		response.StatusCode == http.StatusPreconditionFailed
	isAway := response.StatusCode >= http.StatusMultipleChoices || !w.old && kind != "application/json" &&
		kind != eventStream
	if isAway && (asks || e.pays() || e.method != Initialize) {
		a, _ := w.http.read(response, r.URL) // with an error it holds what came
		e.turnedAway(r, a, id, asks)
		if w.old {
			w.stop(e, nil)
			return response
		}
		return instead(r, id)
	}
	if e.pays() {
		a := &Answer{Status: response.StatusCode, Header: response.Header}
		a.Settlement, a.SettlementErr = x402.ReadSettlement(response.Header)
		e.mu.Lock()
		e.http = a
		e.mu.Unlock()
	}
	if w.old { // the answer comes on another stream
		return response
	}
	coming := &hear{wire: w, request: r, body: response.Body, left: maxStream, e: e, id: id,
		isStream: kind == eventStream}
	e.mu.Lock()
	e.coming = coming
	e.mu.Unlock()
	response.Body = coming
	response.ContentLength = -1
	return response
}

// turnedAway notes what the endpoint itself answered. To a request of an unknown session that is
// 404 (MCP, transports, session management), or, from servers that are written like an example of
// the TypeScript SDK's, 400.
func (e *exchange) turnedAway(r *http.Request, a *Answer, id json.RawMessage, asks bool) {
	(&hear{e: e, id: id}).message(a.Content) // its reason may be this call's
	saysSession := bytes.Contains(bytes.ToLower(a.Content), []byte("session"))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missing = r.Header.Get(sessionHeader) != "" && (a.Status == http.StatusNotFound ||
		a.Status == http.StatusBadRequest && saysSession)
	if asks || e.pays() {
		e.http = a
		return
	}
	e.failure = x402.Errorf(x402.ServerUnavailable, "%s answered HTTP %d", r.URL.Host, a.Status).
		WithHint("nothing was paid; its answer is in details").WithDetail("said", quote(string(a.Content)))
}

const (
	sessionHeader = "Mcp-Session-Id"
	eventStream   = "text/event-stream"
)

// taken is what the SDK gets for what asks for no answer.
func taken(r *http.Request) *http.Response {
	return &http.Response{Status: "202 Accepted", StatusCode: http.StatusAccepted, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{}, Body: http.NoBody}
}

// instead is what the SDK gets for an answer that is no message: an error, to this call alone.
func instead(r *http.Request, id json.RawMessage) *http.Response {
	text := insteadText(id)
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Request: r, ContentLength: int64(len(text)),
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(text)),
	}
}

func insteadText(id json.RawMessage) string {
	return `{"jsonrpc":"2.0","id":` + string(id) +
		`,"error":{"code":402,"message":"the endpoint answered for itself"}}`
}
