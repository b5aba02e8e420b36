package tools

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxHTTPSessions bounds the sessions over HTTP at a time, half of them at most one agent's. Clients
	// often leave sessions open: one more ends the one that is unused longest.
	maxHTTPSessions = 1000
	// sessionRetry is when a client may try again where all are in use.
	sessionRetry = 10 * time.Second

	sessionHeader = "Mcp-Session-Id"
)

// httpSessions counts the sessions over HTTP. The SDK opens and keeps them.
type httpSessions struct {
	of   *Server // whose they are
	next http.Handler
	most int

	mu     sync.Mutex
	open   map[*httpSession]bool
	ending map[string]bool // by id: ended here, and the SDK is still about it
}

type httpSession struct {
	agent   string
	id      string // "": it is being opened
	used    time.Time
	calls   int // under way
	streams int // that its client listens to
}

func (h *httpSessions) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	opens := id == "" && r.Method == http.MethodPost
	var s *httpSession
	if opens {
		s = h.begin(auth.TokenInfoFromContext(r.Context()).UserID)
	} else {
		s = h.enter(id, r.Method)
	}
	if s == nil && h.isEnding(id) { // what the SDK would say depends on how far it has come
		http.Error(rw, "session not found", http.StatusNotFound)
		return
	}
	if s == nil && opens {
		rw.Header().Set("Retry-After", strconv.Itoa(int(sessionRetry.Seconds())))
		http.Error(rw, "too many sessions are in use: "+strconv.Itoa(h.most/2)+" of one agent, "+
			strconv.Itoa(h.most)+" of all; end some, or make more calls in one",
			http.StatusServiceUnavailable)
		return
	}
	if s == nil { // the SDK says that there is none
		h.next.ServeHTTP(rw, r)
		return
	}
	defer func() { h.leave(s, r.Method, rw.Header().Get(sessionHeader)) }()
	h.next.ServeHTTP(rw, r)
}

// enter finds the session of a request and counts the request in it; nil: there is none.
func (h *httpSessions) enter(id, method string) *httpSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.open {
		if s.id == id {
			*s.requests(method)++
			return s
		}
	}
	return nil
}

func (h *httpSessions) isEnding(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ending[id]
}

// requests is the count that a request belongs to.
func (s *httpSession) requests(method string) *int {
	if method == http.MethodGet {
		return &s.streams
	}
	return &s.calls
}

// leave notes the end of a request, and what the session is called that it opened.
func (h *httpSessions) leave(s *httpSession, method, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*s.requests(method)--
	s.used = time.Now()
	if s.id == "" {
		s.id = id
	}
	if s.id == "" {
		delete(h.open, s)
	}
}

// begin takes a place for a session of an agent's; nil: there is none.
func (h *httpSessions) begin(agent string) *httpSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetEnded()
	own := func(s *httpSession) bool { return s.agent == agent }
	anyone := func(*httpSession) bool { return true }
	if !h.makeRoom(h.most/2, own) || !h.makeRoom(h.most, anyone) {
		return nil
	}
	s := &httpSession{agent: agent, calls: 1}
	h.open[s] = true
	return s
}

func (h *httpSessions) forgetEnded() {
	live := map[string]bool{}
	for s := range h.of.server.Sessions() {
		live[s.ID()] = true
	}
	for s := range h.open {
		if s.id != "" && !live[s.id] {
			delete(h.open, s)
		}
	}
}

// addTo adds the sessions of each agent.
func (h *httpSessions) addTo(by map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetEnded()
	for s := range h.open {
		by[s.agent]++
	}
}

// makeRoom ends a session if there are too many of those that count: of the agent that has the most of them
// one without a call, and rather without a listener, that is unused longest. It reports whether there is
// room.
func (h *httpSessions) makeRoom(most int, counts func(*httpSession) bool) bool {
	all, of := 0, map[string]int{}
	for s := range h.open {
		if counts(s) {
			all++
			of[s.agent]++
		}
	}
	if all < most {
		return true
	}
	var unused *httpSession
	for s := range h.open {
		if !counts(s) || s.id == "" || s.calls > 0 {
			continue
		}
		if unused == nil || before(s, unused, of) {
			unused = s
		}
	}
	if unused == nil {
		return false
	}
	delete(h.open, unused)
	for s := range h.of.server.Sessions() {
		if s.ID() == unused.id {
			h.ending[s.ID()] = true
			go h.end(s)
		}
	}
	return true
}

// end ends a session, which waits for a call whose client has left.
func (h *httpSessions) end(s *mcp.ServerSession) {
	_ = s.Close() // after which the SDK knows it no longer
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ending, s.ID())
}

// before reports whether a is rather to be ended than b.
func before(a, b *httpSession, of map[string]int) bool {
	switch {
	case of[a.agent] != of[b.agent]:
		return of[a.agent] > of[b.agent]
	case (a.streams > 0) != (b.streams > 0):
		return b.streams > 0
	}
	return a.used.Before(b.used)
}
