package tools

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/pay"
	"x402-wallet/x402/wire"
)

const (
	// sessionIdle is how long a session over HTTP may say nothing.
	sessionIdle = 30 * time.Minute
	// bodyTime is how long a request may take to come: for 16 MiB that is 2 Mbit/s.
	bodyTime = time.Minute
	// writeTime is how long a client may take to read what is written at once, at most 16 MiB, too.
	writeTime = time.Minute
	// sessionless is the first version of MCP that has no sessions.
	sessionless = "2026-07-28"
	// subscribing is the one method of those versions whose answer does not end.
	subscribing = "subscriptions/listen"
	// mcpPath is where MCP is.
	mcpPath = "/mcp"
)

// HTTP is MCP's streamable HTTP transport, at /mcp, for agents that show a token or a certificate. It is to
// be used while Serve serves, behind a loopback.Door, which keeps web pages out.
func (s *Server) HTTP(agents Agents) http.Handler {
	one := func(*http.Request) *mcp.Server { return s.server }
	events := newEvents()
	before := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: wire.MaxMCPMessage, EventStore: events, SessionTimeout: sessionIdle,
		DisableLocalhostProtection: true})
	sessions := &httpSessions{of: s, next: before, most: cmp.Or(s.httpSessions, maxHTTPSessions),
		open: map[*httpSession]bool{}, ending: map[string]bool{}}
	s.overHTTP = sessions
	since := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: wire.MaxMCPMessage, Stateless: true, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true})
	byVersion := func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
			since.ServeHTTP(rw, r)
		} else {
			sessions.ServeHTTP(rw, r)
		}
	}
	front := &httpFront{agents: agents, log: logger(s.Log), next: http.HandlerFunc(byVersion),
		lookAgain: lookAgain, writeTime: writeTime, calls: share{most: maxOfOne}}
	mux := http.NewServeMux()
	mux.Handle(mcpPath, front)
	mux.HandleFunc("GET "+metadataPath, front.metadata)
	mux.HandleFunc("GET "+metadataPath+mcpPath, front.metadata)
	return mux
}

// isStream reports whether the answer to a request has no end of its own.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == subscribing
}

// serve serves an agent's request, which carries one call at most.
func (f *httpFront) serve(rw http.ResponseWriter, r *http.Request, agent string, c *pay.Call) {
	out := &answerWriter{ResponseWriter: rw, time: f.writeTime}
	if r.Method != http.MethodPost {
		f.next.ServeHTTP(out, r)
		return
	}
	if !f.calls.take(agent) {
		http.Error(rw, "too many requests of this agent are unanswered", http.StatusTooManyRequests)
		return
	}
	defer f.calls.leave(agent)
	body, err := readBody(rw, r)
	if err != nil {
		http.Error(rw, "the request is too large, too slow, or cut off", http.StatusRequestEntityTooLarge)
		return
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		http.Error(rw, "batches are not supported", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.next.ServeHTTP(out, r)
	if out.failed || r.Context().Err() != nil {
		c.Leave() // it may come back for the answer, on a stream of its session or by the same call
	} else {
		c.Deliver()
	}
}

// readBody takes a request's body, which has to come in time.
func readBody(rw http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(rw)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, wire.MaxMCPMessage))
	_ = connection.SetReadDeadline(time.Time{}) // from here on a read is how its going away is heard of
	return body, err
}

// answerWriter notes whether the answer could be written, which has to be read in time.
type answerWriter struct {
	http.ResponseWriter
	time   time.Duration
	failed bool
}

func (w *answerWriter) Write(p []byte) (n int, err error) {
	w.inTime(func(*http.ResponseController) error {
		n, err = w.ResponseWriter.Write(p)
		return err
	})
	return n, err
}

// FlushError implements what http.ResponseController flushes by.
func (w *answerWriter) FlushError() (err error) {
	w.inTime(func(connection *http.ResponseController) error {
		err = connection.Flush()
		return err
	})
	return err
}

func (w *answerWriter) inTime(write func(*http.ResponseController) error) {
	connection := http.NewResponseController(w.ResponseWriter)
	_ = connection.SetWriteDeadline(time.Now().Add(w.time))
	w.failed = write(connection) != nil || w.failed
	_ = connection.SetWriteDeadline(time.Time{}) // a stream may be silent for as long as it likes
}

func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
