package mcpconn

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// The SDK waits for the answer to what is optional, without a deadline: for the session's own stream
// while the session is being opened, and for the word that it is over when it is closed. A server that
// leaves those unanswered would hold up all else. So they are answered here at once.

// tellTime is how long a server may take to hear what needs no answer.
const tellTime = 2 * time.Second

// isOwnStream reports whether a request asks for the session's own stream, from its beginning.
func (t *IsolatingTransport) isOwnStream(r *http.Request) bool {
	return r.Method == http.MethodGet && !t.TwoStreams && r.Header.Get("Last-Event-Id") == ""
}

// openLate answers the GET of a session's own stream by a stream that is asked for when it is read. Where
// there is none, nothing comes on it.
func (t *IsolatingTransport) openLate(r *http.Request) *http.Response {
	response := respondStream(r, http.NoBody)
	s := newStream(t, r, call{}, response)
	s.unasked, s.brokeOff = true, true
	response.Body = s
	return response
}

// listenLate is the same for subscriptions/listen, which takes its place since MCP 2026-07-28.
func (t *IsolatingTransport) listenLate(r *http.Request, body []byte, c call) *http.Response {
	return respondStream(r, &lateBody{ask: func() io.ReadCloser {
		response, err := t.Send(r, body, nil)
		if err != nil {
			return http.NoBody
		}
		if response.StatusCode == http.StatusOK && mediaType(response) == eventStream {
			return response.Body // without an end; the SDK bounds its events
		}
		defer response.Body.Close()
		refusal, _ := io.ReadAll(io.LimitReader(response.Body, maxRejection))
		answer := newStream(t, r, c, nil).message(refusal)
		if answer == nil {
			answer = syntheticText(c.ID)
		}
		return io.NopCloser(strings.NewReader(fmt.Sprintf("data: %s\n\n", answer)))
	}})
}

// tell sends what needs no answer. Whether it arrived is of no consequence here.
func (t *IsolatingTransport) tell(r *http.Request, body []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), tellTime)
	defer cancel()
	if response, err := t.Send(r.WithContext(ctx), body, nil); err == nil {
		_ = response.Body.Close()
	}
}

func respondStream(r *http.Request, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Request: r, ContentLength: -1, Body: body,
		Header: http.Header{"Content-Type": {eventStream}}}
}

// lateBody is a body that is asked for when it is first read. Its reader alone closes it.
type lateBody struct {
	ask  func() io.ReadCloser
	body io.ReadCloser
}

func (b *lateBody) Read(p []byte) (int, error) {
	if b.body == nil {
		b.body = b.ask()
	}
	return b.body.Read(p)
}

func (b *lateBody) Close() error {
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}
