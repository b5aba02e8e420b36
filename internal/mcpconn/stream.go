package mcpconn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"x402-wallet/x402/wire"
)

const (
	// maxAnswer bounds all that a server may send for one call: its result, and what it says while it works.
	maxAnswer = 2 * wire.MaxMCPMessage
	// resumeTries is how often a stream that broke off is asked for again without anything new from it.
	resumeTries = 5
	// resumePause is how soon, where the server does not say; resumeLeast is the soonest, whatever
	// it says. Both double with each try.
	resumePause = time.Second
	resumeLeast = 100 * time.Millisecond
)

// ErrAnswerTooLong says that a server sent more than maxAnswer for one call.
var ErrAnswerTooLong = fmt.Errorf("the server's answer is longer than %d bytes", maxAnswer)

// responseStream reads the answer to a call over HTTP: one JSON message, or a stream of events of
// which one is the answer. The SDK gets of it whole messages that are this call's, and nothing that
// would end the session for others. A stream that breaks off is taken up again here (MCP,
// transports, resumability): the SDK would end the session where that is refused, and would not do
// it for a session that has ended. So is the session's own stream, which answers nothing; where it
// cannot be had again, the session goes on without it.
type responseStream struct {
	transport *IsolatingTransport
	request   *http.Request
	call      call // without an ID: the session's own stream
	isStream  bool

	mu         sync.Mutex // the SDK reads, and an Observer may
	body       io.ReadCloser
	left       int64  // of maxAnswer
	partial    []byte // read, and no whole line or, of one JSON message, not all of it
	event      event
	lastID     string        // of the last whole event
	retry      time.Duration // as the server wants it; 0: it does not say
	tries      int           // to take the stream up, since the last event with an id
	forSDK     []byte
	unasked    bool // the session's own, of which nothing was asked yet
	brokeOff   bool // before the answer
	isAnswered bool
	isOver     bool
}

// event is one that is not whole yet.
type event struct {
	kind, id string
	data     []byte
}

func newStream(t *IsolatingTransport, r *http.Request, c call, response *http.Response) *responseStream {
	s := &responseStream{transport: t, request: r, call: c, left: maxAnswer}
	if response != nil {
		s.body, s.isStream = response.Body, mediaType(response) == eventStream
	}
	return s
}

func (s *responseStream) isOwn() bool { return s.call.ID == nil }

func (s *responseStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOver = true
	return s.body.Close()
}

func (s *responseStream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var buffer []byte
	for len(s.forSDK) == 0 && !s.isOver {
		if buffer == nil {
			buffer = make([]byte, 16<<10)
		}
		s.advance(buffer)
	}
	if len(s.forSDK) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.forSDK)
	s.forSDK = s.forSDK[n:]
	return n, nil
}

// advance reads once from the body, or takes up a stream that broke off.
func (s *responseStream) advance(buffer []byte) {
	if s.brokeOff {
		s.brokeOff = false
		if !s.resume() {
			s.end()
		}
		return
	}
	n, err := s.body.Read(buffer[:min(int64(len(buffer)), s.left)])
	s.left -= int64(n)
	switch {
	case s.isAnswered: // the rest, so that the connection can be used again
		s.isOver = err != nil || s.left == 0
		return
	case s.left == 0:
		if s.call.observer != nil {
			s.call.observer.Failed(ErrAnswerTooLong)
		}
		s.end()
		return
	}
	s.partial = append(s.partial, buffer[:n]...)
	switch {
	case s.isStream:
		s.readLines()
		if err != nil && !s.isAnswered {
			s.readUnfinished()
			s.brokeOff = !s.isAnswered
		}
	case err != nil:
		s.forSDK = s.message(s.partial)
		s.end()
	}
}

// end lets the SDK know that nothing more comes: without an answer it ends this call, and nothing else.
func (s *responseStream) end() {
	s.isOver = true
	if s.isOwn() {
		<-s.request.Context().Done()
		return
	}
	if s.forSDK == nil && !s.isStream {
		s.forSDK = syntheticText(s.call.ID)
	}
}

// readUnfinished reads what came before a stream broke off: the last event may lack its end. A part
// of a message is none, so it does not count as progress.
func (s *responseStream) readUnfinished() {
	s.partial = append(s.partial, "\n\n"...)
	lastID, tries := s.lastID, s.tries
	s.readLines()
	s.lastID, s.tries = lastID, tries
}

// readLines takes the lines that are whole (HTML, server-sent events, 9.2.6).
func (s *responseStream) readLines() {
	for {
		line, rest, isWhole := bytes.Cut(s.partial, []byte("\n"))
		if !isWhole {
			return
		}
		s.partial = rest
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			s.dispatch(s.event)
			s.event = event{}
			continue
		}
		s.readField(string(line))
	}
}

func (s *responseStream) readField(line string) {
	name, value, _ := strings.Cut(line, ":") // without a name: a comment
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "data":
		s.event.data = append(s.event.data, value+" "...) // its line's end stands between JSON's words
	case "event":
		s.event.kind = value
	case "id":
		s.event.id = value
	case "retry":
		if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
			s.retry = time.Duration(ms) * time.Millisecond
		}
	}
}

func (s *responseStream) dispatch(e event) {
	if e.id != "" && e.id != s.lastID {
		s.lastID, s.tries = e.id, 0
	}
	if s.isOwn() {
		s.left = maxAnswer // each event by itself: the stream lasts as long as the session
	}
	if e.kind != "" && e.kind != "message" {
		return
	}
	if text := s.message(e.data); text != nil {
		s.forSDK = fmt.Appendf(s.forSDK, "data: %s\n\n", text)
	}
}

// message reports the answer to the observer, if it is this call's. It gives what is for the SDK: a
// message, and no other call's answer; nil for none.
func (s *responseStream) message(text []byte) []byte {
	var m struct {
		ID, Result json.RawMessage
		Error      *jsonrpc.Error
		Method     string
	}
	if json.Unmarshal(text, &m) != nil {
		return nil
	}
	_, err := jsonrpc.DecodeMessage(text)
	if m.Method != "" || (m.Result == nil && m.Error == nil) {
		if err != nil || m.Method == "" || !s.isStream {
			return nil
		}
		return text
	}
	if s.isOwn() || !sameNumber(m.ID, s.call.ID) {
		return nil
	}
	if s.call.observer != nil {
		s.call.observer.Answered(m.Result, m.Error)
	}
	s.isAnswered = true
	if err != nil {
		return syntheticText(s.call.ID)
	}
	return text
}

// sameNumber compares ids: ours are numbers, which others may write in another way.
func sameNumber(a, b json.RawMessage) bool {
	var x, y *float64
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x != nil && y != nil && *x == *y
}

// resume asks for the rest of a stream. It is no request for the call again, and pays nothing.
func (s *responseStream) resume() bool {
	_ = s.body.Close()
	s.partial, s.event = nil, event{}
	for ; s.isOwn() || (s.lastID != "" && s.tries < resumeTries); s.tries++ {
		if !s.unasked && !s.pause() {
			return false
		}
		s.unasked = false
		get, err := s.resumption()
		if err != nil {
			return false
		}
		response, err := s.transport.Send(get, nil, nil)
		if err != nil {
			continue
		}
		if response.StatusCode == http.StatusOK && mediaType(response) == eventStream {
			s.body = response.Body
			s.tries++
			return true
		}
		_ = response.Body.Close()
		mayRecover := response.StatusCode >= http.StatusInternalServerError ||
			response.StatusCode == http.StatusTooManyRequests
		if !mayRecover {
			return false
		}
	}
	return false
}

// pause waits until a stream may be asked for again; false: nobody wants it any more.
func (s *responseStream) pause() bool {
	wait := resumePause
	if s.retry > 0 {
		wait = max(s.retry, resumeLeast)
	}
	select {
	case <-time.After(wait << min(s.tries, resumeTries)):
		return true
	case <-s.request.Context().Done():
		return false
	case <-s.transport.Quit:
		return false
	}
}

// resumption is the request for the rest of the stream.
func (s *responseStream) resumption() (*http.Request, error) {
	get, err := http.NewRequestWithContext(s.request.Context(), http.MethodGet, s.request.URL.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{sessionHeader, versionHeader} {
		if value := s.request.Header.Get(name); value != "" {
			get.Header.Set(name, value)
		}
	}
	get.Header.Set("Accept", eventStream)
	if s.lastID != "" {
		get.Header.Set("Last-Event-Id", s.lastID)
	}
	return get, nil
}
