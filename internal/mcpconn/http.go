// Package mcpconn is how this program speaks MCP, below the SDK: what the SDK's own transports lack
// against a peer that is careless or hostile. tools serves the agent with it, seller reaches paid
// servers with it, and the paywall does both.
//
// What must stay true: nothing a peer writes can end the session of others or take memory without a
// bound. A line that is no message costs that line (stdio.go, command.go), an HTTP answer that is
// no message costs its own call (http.go, stream.go), a list is read to a limit (list.go), and a
// program that was started is ended in bounded time with all that it started (command.go). What is
// optional, a session's own stream or the word that it is over, is never waited for (late.go).
//
// list.go also shows on a server of ours what another server has, and tells clients only of what
// really changed.
package mcpconn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402/wire"
)

// Headers and types of MCP over HTTP.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	eventStream   = "text/event-stream"
)

// maxRejection bounds what is read of an answer that is a refusal.
const maxRejection = 1 << 20

// Observer hears what became of one call over HTTP, as it came: the SDK gives back its own types,
// in which unknown members are lost. Its methods are called by several goroutines.
type Observer interface {
	// Rejected reads an answer of the endpoint itself: a status that is no success, or a body that
	// is neither JSON nor a stream of events. It gives the body, and whether the call is to fail
	// alone; otherwise the SDK gets the answer as it is.
	Rejected(request *http.Request, response *http.Response) (body []byte, alone bool)
	// Accepted hears the headers of any other answer.
	Accepted(response *http.Response)
	// Following gets the answer's body, of which the SDK reads as much as it wants.
	Following(body io.Reader)
	// Answered hears the call's answer: a result, or the server's own error.
	Answered(result json.RawMessage, refused *jsonrpc.Error)
	// Failed hears why there will be no answer.
	Failed(err error)
	// Abort ends this call for its caller, where its answers come on another stream; err is nil
	// where Rejected knows why.
	Abort(err error)
}

// IsolatingTransport is an http.RoundTripper below the SDK's client transports, on which each call
// fails by itself. The SDK takes a refusal of one call, an answer that is no message, or a stream that
// breaks off for the end of the session, and so of everybody's calls. Here such a call gets a JSON-RPC
// error of ours, a stream that breaks off is taken up again, and no answer is longer than maxAnswer.
// Only what opens a session, and the server's word that it does not know it (any more), can end it.
type IsolatingTransport struct {
	// Send makes one exchange. The body is the request's, which may be sent again only where Send
	// knows that it may.
	Send func(r *http.Request, body []byte, o Observer) (*http.Response, error)
	// Observe is who observes the call whose request has this context and method; nil: nobody.
	Observe func(ctx context.Context, method string) Observer
	// Quit ends the waiting for streams that broke off; nil: their contexts alone do.
	Quit <-chan struct{}
	// TwoStreams says that answers come on the session's own stream, as in SSE of 2024-11-05.
	TwoStreams bool
}

// Direct is an IsolatingTransport for a server that its owner chose. through is as http.Transport.Proxy: nil
// reaches it without a proxy, whatever the environment says.
func Direct(through func(*http.Request) (*url.URL, error)) *IsolatingTransport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = through
	base.MaxResponseHeaderBytes = 128 << 10
	return &IsolatingTransport{Send: func(r *http.Request, body []byte, _ Observer) (*http.Response, error) {
		out := r.Clone(r.Context())
		out.Body = http.NoBody
		if len(body) > 0 {
			out.Body = io.NopCloser(bytes.NewReader(body))
		}
		return base.RoundTrip(out)
	}}
}

// Streamable is MCP over streamable HTTP.
func Streamable(endpoint string, client *http.Client) mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: client, MaxRetries: 2,
		MaxEventSize: wire.MaxMCPMessage}
}

// Client is an HTTP client that follows no redirects.
func Client(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// opening are the messages whose outcome is the session's.
var opening = []string{"initialize", "notifications/initialized", "server/discover"}

// call is a request of ours, as far as it is read here.
type call struct {
	ID       json.RawMessage `json:"id"`
	Method   string          `json:"method"`
	observer Observer
}

func (t *IsolatingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	var c call
	_ = json.Unmarshal(body, &c) // our own message; a GET has none
	if c.ID != nil && t.Observe != nil {
		c.observer = t.Observe(r.Context(), c.Method)
	}
	switch {
	case t.isOwnStream(r):
		return t.openLate(r), nil
	case c.Method == "subscriptions/listen" && c.observer == nil:
		return t.listenLate(r, body, c), nil
	case r.Method == http.MethodDelete:
		t.tell(r, nil)
		return respond(r, nil), nil
	case c.Method == "notifications/cancelled":
		go t.tell(r, body)
		return respond(r, nil), nil
	}
	response, err := t.Send(r, body, c.observer)
	isCall := c.ID != nil && c.Method != ""
	if r.Method == http.MethodPost && !isCall && c.Method != "notifications/initialized" {
		if err == nil {
			_ = response.Body.Close()
		}
		// news of ours, or our answer to a question: whether it arrived ends nothing
		return respond(r, nil), nil
	}
	if err != nil {
		if t.TwoStreams && c.observer != nil {
			c.observer.Abort(err)
		}
		return nil, err
	}
	if c.observer != nil {
		return t.observed(r, response, c), nil
	}
	return t.unobserved(r, response, c), nil
}

// isRejection reports whether the endpoint itself answers, and no MCP server.
func (t *IsolatingTransport) isRejection(response *http.Response) bool {
	kind := mediaType(response)
	return response.StatusCode >= http.StatusMultipleChoices ||
		(!t.TwoStreams && kind != "application/json" && kind != eventStream)
}

func mediaType(response *http.Response) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return kind
}

// observed is the answer to a call that somebody observes, as the SDK gets it.
func (t *IsolatingTransport) observed(r *http.Request, response *http.Response, c call) *http.Response {
	if c.Method != "initialize" {
		response.Header.Del(sessionHeader) // a name of another session would end this one
	}
	if t.isRejection(response) {
		body, alone := c.observer.Rejected(r, response)
		if alone {
			newStream(t, r, c, nil).message(body) // its reason may be this call's answer
		}
		switch {
		case alone && t.TwoStreams:
			c.observer.Abort(nil)
			return response
		case alone:
			return respond(r, syntheticText(c.ID))
		}
	}
	c.observer.Accepted(response)
	if t.TwoStreams {
		return response
	}
	return t.follow(r, response, c)
}

// follow puts a responseStream in the place of an answer's body.
func (t *IsolatingTransport) follow(r *http.Request, response *http.Response, c call) *http.Response {
	stream := newStream(t, r, c, response)
	if c.observer != nil {
		c.observer.Following(stream)
	}
	response.Body = stream
	response.ContentLength = -1
	return response
}

// unobserved is the answer to a call that nobody observes.
func (t *IsolatingTransport) unobserved(r *http.Request, response *http.Response, c call) *http.Response {
	switch {
	case t.TwoStreams, r.Method != http.MethodPost:
		return response
	case slices.Contains(opening, c.Method):
		response.Body = &limitedBody{ReadCloser: response.Body, left: maxAnswer}
		return response
	}
	response.Header.Del(sessionHeader)
	if !t.isRejection(response) {
		return t.follow(r, response, c)
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxRejection))
	_ = response.Body.Close()
	if IsSessionMissing(r, response.StatusCode, body) {
		response.StatusCode, response.Body, response.ContentLength = http.StatusNotFound, http.NoBody, 0
		return response
	}
	answer := newStream(t, r, c, nil).message(body) // a server's error may come with a status that is one
	if answer == nil {
		answer = syntheticText(c.ID)
	}
	return respond(r, answer)
}

// IsSessionMissing reports whether an endpoint does not know the session of a request (any more),
// and so did nothing. It says so by 404 (MCP, transports, session management), or, where it is
// written like an example of the TypeScript SDK's, by 400.
func IsSessionMissing(r *http.Request, status int, body []byte) bool {
	speaksOfIt := status == http.StatusBadRequest && bytes.Contains(bytes.ToLower(body), []byte("session"))
	return r.Header.Get(sessionHeader) != "" && (status == http.StatusNotFound || speaksOfIt)
}

// respond is an answer of ours to the SDK: a message, or nil where it needs none.
func respond(r *http.Request, message []byte) *http.Response {
	response := &http.Response{StatusCode: http.StatusAccepted, Request: r, Header: http.Header{},
		Body: http.NoBody}
	if message != nil {
		response.StatusCode, response.ContentLength = http.StatusOK, int64(len(message))
		response.Header.Set("Content-Type", "application/json")
		response.Body = io.NopCloser(bytes.NewReader(message))
	}
	return response
}

// syntheticText is what the SDK gets for an answer that is no message: an error, to this call alone.
func syntheticText(id json.RawMessage) []byte {
	return fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"the server gave no answer"}}`,
		id, jsonrpc.CodeInternalError)
}

// limitedBody fails, rather than ends, at its limit: an answer that was cut off must not look like
// a whole one.
type limitedBody struct {
	io.ReadCloser
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrAnswerTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
