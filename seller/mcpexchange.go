package seller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// What the SDK gives back of an answer is its own types, in which unknown members are lost:
// resultType "payment_required" with what is asked, and the very bytes of an option. So each call
// carries an exchange in its context, and whatever the call goes through notes there what left and
// what came: a recorder, for commands and SSE of 2024-11-05, and a sessionTransport, for HTTP.

type exchange struct {
	client *httpClient // reads what an endpoint answers itself
	method string
	with   wire.Attachment
	once   atomic.Bool // its request was handed to the connection
	sent   atomic.Bool // something of it may have left

	mu     sync.Mutex
	result json.RawMessage // as it came
	// the server's own, as it came: the SDK puts errors of the connection into the same form
	refused *jsonrpc.Error
	// of the endpoint itself: an answer that is no message, or the headers of one that is
	http    *Answer
	missing bool // the endpoint does not know the session (any more), and did nothing
	// of a session that the endpoint refused to open; nil: it did not
	unopened *x402.Error
	// what the SDK says, where nothing came; or the endpoint's refusal, where nothing was paid
	failure  error
	answered chan struct{} // closed when result or refused came
	body     io.Reader     // the answer over HTTP, as far as it came
	cancel   func()        // ends this call alone
}

func (m *Client) newExchange(method string, with wire.Attachment) *exchange {
	return &exchange{client: m.http, method: method, with: with, answered: make(chan struct{})}
}

func (e *exchange) pays() bool { return e.with.Header != "" || e.with.Meta != nil }

// asksItself reports whether the endpoint itself answered, and no MCP server.
func (e *exchange) asksItself() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.http != nil
}

// lacksHeaders reports whether the server refused to look at the call because its arguments are not repeated
// in headers, as the tool's schema wants it.
func (e *exchange) lacksHeaders() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused != nil && e.refused.Code == mcp.CodeHeaderMismatch
}

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

var errSentTwice = errors.New("a request with a payment would have left a second time")

// markLeaving is called right before the request leaves.
func (e *exchange) markLeaving() error {
	if e.once.Swap(true) && e.pays() {
		return errSentTwice
	}
	return nil
}

// Answered notes the answer; the first one counts.
func (e *exchange) Answered(result json.RawMessage, refused *jsonrpc.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.result == nil && e.refused == nil {
		e.result, e.refused = bytes.Clone(result), refused
		close(e.answered)
	}
}

// Failed notes why there is no answer, unless that is known.
func (e *exchange) Failed(err error) {
	if errors.Is(err, mcpconn.ErrAnswerTooLong) {
		err = x402.Errorf(x402.ResponseTooLarge, "%w", mcpconn.ErrAnswerTooLong)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure == nil {
		e.failure = err
	}
}

// Following notes where the answer comes from.
func (e *exchange) Following(body io.Reader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.body = body
}

// Abort ends this call, where the SDK would take what happened for the end of the session.
func (e *exchange) Abort(err error) {
	if e.cancel == nil { // the session is being opened
		return
	}
	if err != nil {
		e.Failed(err)
	}
	e.cancel()
}

// drain waits for the rest of an answer that comes over HTTP. When something that is no call ended
// the session (a list of tools), the SDK lets go of all its calls; but their answers are requests
// of their own, and still come.
func (e *exchange) drain(ctx context.Context, quit <-chan struct{}) {
	e.mu.Lock()
	body, isAnswered := e.body, e.result != nil || e.refused != nil
	e.mu.Unlock()
	if body == nil || isAnswered {
		return
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, body)
	}()
	select {
	case <-e.answered:
	case <-over:
	case <-ctx.Done():
	case <-quit:
	}
}

// Rejected notes what the endpoint itself answered.
func (e *exchange) Rejected(r *http.Request, response *http.Response) (body []byte, alone bool) {
	asks := response.StatusCode == http.StatusPaymentRequired ||
		response.StatusCode == http.StatusPreconditionFailed
	if e.method == Initialize && !asks && !e.pays() {
		refusal := refusedWith(r.URL, response.StatusCode, overheard(response))
		e.mu.Lock()
		defer e.mu.Unlock()
		e.unopened = refusal
		return nil, false
	}
	slots := e.client.asked
	if e.pays() {
		slots = e.client.paid
	}
	// with an error it holds what came
	a, _ := e.client.read(response, r.URL, slots, e.client.options.MaxContent)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missing = mcpconn.IsSessionMissing(r, a.Status, a.Content)
	if asks || e.pays() {
		e.http = a
	} else {
		e.failure = refusedWith(r.URL, a.Status, string(a.Content))
	}
	return a.Content, true
}

// maxOverheard is more than is quoted of what a stranger says.
const maxOverheard = 512

// overheard is the beginning of a body, which stays to be read.
func overheard(response *http.Response) string {
	if response.Header.Get("Content-Encoding") != "" {
		return ""
	}
	body := response.Body
	begin, _ := io.ReadAll(io.LimitReader(body, maxOverheard)) // whoever reads on hears why it broke off
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), body), body}
	return string(begin)
}

// refusedWith is an endpoint's refusal of a request without payment, by a status; said is its own words.
func refusedWith(at *url.URL, status int, said string) *x402.Error {
	e := x402.Errorf(x402.ServerUnavailable, "%s answered HTTP %d", hostOf(at), status).
		WithDetail("httpStatus", status)
	if said != "" {
		e = e.WithDetail("said", x402.Quote(said))
	}
	const unpaid = "nothing was paid; "
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return e.WithHint("nothing was paid").WithNext(x402.Next{Do: x402.GiveUp,
			Why: "the server wants a login, which this wallet has none of"})
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return e.WithHint("nothing was paid").WithNext(x402.Next{Do: x402.Change,
			Why: "is it the URL of the server's MCP endpoint? It often ends in /mcp or /sse"})
	}
	return e.WithHint(unpaid + "its answer is in details").WithNext(x402.Next{Do: x402.Repeat,
		Why: unpaid + "later, if it stays so; or use another server"})
}

// Accepted notes the headers of what was paid for: a receipt may be in them.
func (e *exchange) Accepted(response *http.Response) {
	if !e.pays() {
		return
	}
	a := &Answer{Status: response.StatusCode, Header: response.Header}
	a.Settlement, a.SettlementErr = wire.ReadSettlement(response.Header)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.http = a
}
