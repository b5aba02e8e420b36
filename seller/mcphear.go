package seller

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"x402-wallet/x402"
)

const (
	// maxStream bounds all that a server may send for one call: its result, and what it says while
	// it works.
	maxStream = 2 * x402.MaxMCPMessage
	// resumeTries is how often a stream that broke off is asked for again, without anything new
	// from it.
	resumeTries = 5
	// resumePause is how soon, where the server does not say; resumeLeast is the soonest, whatever
	// it says. Both double with each try.
	resumePause = time.Second
	resumeLeast = 100 * time.Millisecond
)

// hear reads a call's answer over HTTP: one JSON message, or a stream of events of which one is it.
// The SDK gets of it whole messages that are this call's, and nothing that would end the session
// for others. A stream that breaks off is taken up again here (MCP, transports, resumability): the
// SDK would end the session where that is refused, and would not do it for a session that has
// ended. So is the session's own stream, which answers nothing; where it cannot be had again, the
// session goes on without.
type hear struct {
	wire     *wire
	request  *http.Request
	e        *exchange // nil: the session's own stream
	id       json.RawMessage
	isStream bool

	mu       sync.Mutex // the SDK reads, and hearOut
	body     io.ReadCloser
	left     int64
	came     []byte // and is no whole line or, of a message, all of it
	event    event
	last     string        // id of the last whole event
	retry    time.Duration // as the server wants it; 0: it does not say
	tries    int           // to take it up, since the last event with an id
	out      []byte        // for the SDK
	broke    bool          // the stream, before the answer
	answered bool
	over     bool
}

// event is one that is not whole yet.
type event struct {
	kind, id string
	data     []byte
}

// Close implements io.Closer.
func (h *hear) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	return h.body.Close()
}

// Read implements io.Reader.
func (h *hear) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for buffer := []byte(nil); len(h.out) == 0 && !h.over; {
		if buffer == nil {
			buffer = make([]byte, 16<<10)
		}
		h.more(buffer)
	}
	if len(h.out) == 0 {
		return 0, io.EOF
	}
	n := copy(p, h.out)
	h.out = h.out[n:]
	return n, nil
}

// more reads on.
func (h *hear) more(buffer []byte) {
	if h.broke {
		if h.broke = false; !h.resume() {
			h.end()
		}
		return
	}
	n, err := h.body.Read(buffer[:min(int64(len(buffer)), h.left)])
	h.left -= int64(n)
	switch {
	case h.answered: // the rest, so that the connection can be used again
		h.over = err != nil || h.left == 0
		return
	case h.left == 0 && h.e == nil:
		h.end()
		return
	case h.left == 0:
		h.e.fail(x402.Errorf(x402.ResponseTooLarge, "the server's answer is longer than %d bytes", maxStream))
		h.end()
		return
	}
	h.came = append(h.came, buffer[:n]...)
	switch {
	case !h.isStream && err != nil:
		h.out = h.message(h.came)
		h.end()
	case h.isStream:
		h.lines()
		if err != nil && !h.answered {
			h.came = append(h.came, "\n\n"...) // the last event may lack its end; a part of a message is none
			last, tries := h.last, h.tries
			h.lines()
			h.last, h.tries = last, tries
		}
		h.broke = err != nil && !h.answered
	}
}

// end lets the SDK know that nothing more comes: without an answer it ends this call, and nothing
// else.
func (h *hear) end() {
	h.over = true
	if h.e == nil {
		<-h.request.Context().Done()
	}
	if h.out == nil && !h.isStream {
		h.out = []byte(insteadText(h.id))
	}
}

// lines takes those that are whole (HTML, server-sent events, 9.2.6).
func (h *hear) lines() {
	for {
		line, rest, whole := bytes.Cut(h.came, []byte("\n"))
		if !whole {
			return
		}
		h.came = rest
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			h.take(h.event)
			h.event = event{}
			continue
		}
		name, value, _ := strings.Cut(string(line), ":") // without a name: a comment
		switch value = strings.TrimPrefix(value, " "); name {
		case "data":
			// for the line's end: it stands between JSON's words
			h.event.data = append(append(h.event.data, value...), ' ')
		case "event":
			h.event.kind = value
		case "id":
			h.event.id = value
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				h.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// take takes a whole event.
func (h *hear) take(e event) {
	if e.id != "" && e.id != h.last {
		h.last, h.tries = e.id, 0
	}
	if h.e == nil {
		h.left = maxStream
	}
	if e.kind != "" && e.kind != "message" {
		return
	}
	if text := h.message(e.data); text != nil {
		h.out = append(append(append(h.out, "data: "...), text...), "\n\n"...)
	}
}

// message notes the answer, if it is this call's. It gives what is for the SDK: a message, and no
// other call's answer; nil for none.
func (h *hear) message(text []byte) []byte {
	var m struct {
		ID, Result json.RawMessage
		Error      *jsonrpc.Error
		Method     string
	}
	if json.Unmarshal(text, &m) != nil {
		return nil
	}
	_, err := jsonrpc.DecodeMessage(text)
	if m.Method != "" || m.Result == nil && m.Error == nil {
		if err != nil || m.Method == "" || !h.isStream {
			return nil
		}
		return text
	}
	if h.e == nil || !sameNumber(m.ID, h.id) {
		return nil
	}
	h.e.came(m.Result, m.Error)
	if h.answered = true; err != nil {
		return []byte(insteadText(h.id))
	}
	return text
}

// sameNumber compares ids: ours are numbers, which others may write in another way.
func sameNumber(a, b json.RawMessage) bool {
	var x, y *float64
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x != nil && y != nil && *x == *y
}

// resume asks for the rest of a stream. It is no request for the call again, and pays nothing.
func (h *hear) resume() bool {
	_ = h.body.Close()
	h.came, h.event = nil, event{}
	ctx := h.request.Context()
	for ; h.e == nil || h.last != "" && h.tries < resumeTries; h.tries++ {
		wait := resumePause
		if h.retry > 0 {
			wait = max(h.retry, resumeLeast)
		}
		select {
		case <-time.After(wait << min(h.tries, resumeTries)):
		case <-ctx.Done():
			return false
		case <-h.wire.session.quit:
			return false
		}
		get, err := http.NewRequestWithContext(ctx, http.MethodGet, h.request.URL.String(), nil)
		if err != nil {
			return false
		}
		for _, name := range []string{sessionHeader, "Mcp-Protocol-Version"} {
			if value := h.request.Header.Get(name); value != "" {
				get.Header.Set(name, value)
			}
		}
		get.Header.Set("Accept", eventStream)
		if h.last != "" {
			get.Header.Set("Last-Event-Id", h.last)
		}
		response, err := h.wire.send(get, nil, nil)
		if err != nil {
			continue
		}
		isStream := strings.HasPrefix(mediaType(response.Header.Get("Content-Type")), eventStream)
		if response.StatusCode == http.StatusOK && isStream {
			h.body = response.Body
			h.tries++
			return true
		}
		_ = response.Body.Close()
		if response.StatusCode < http.StatusInternalServerError &&
			response.StatusCode != http.StatusTooManyRequests {
			return false
		}
	}
	return false
}
