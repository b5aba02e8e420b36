package paywall

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxHeader bounds a request's headers, of which a payment is the longest.
	maxHeader = 16 << 10
	// maxReading is how many connections may be in the middle of a request: headers take many times
	// their size as they come.
	maxReading = 64
	// sendBuffer is what the system holds of an answer that is not read; by itself it takes 4 MiB.
	sendBuffer = 128 << 10
)

// conns is a listener that bounds its connections. The oldest on which nothing is served makes
// room for the next.
type conns struct {
	net.Listener
	most int

	mu  sync.Mutex
	all map[*conn]struct{}
}

type conn struct {
	net.Conn
	of    *conns
	phase phase
	since time.Time
}

type phase uint8

const (
	idle    phase = iota // for a request to begin
	reading              // in the middle of a request that comes
	serving              // from there until its answer is written
	dropped              // chosen to make room: nothing that still comes of it is served
)

func limitConns(l net.Listener, most int) *conns {
	return &conns{Listener: l, most: most, all: map[*conn]struct{}{}}
}

// Accept implements net.Listener.
func (c *conns) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // without it there is more
	}
	own := &conn{Conn: accepted, of: c, since: time.Now()}
	c.mu.Lock()
	c.all[own] = struct{}{}
	var surplus *conn
	if len(c.all)-c.count(dropped) > c.most {
		// whatever it waits for: who is in the middle of a request has not been for long
		surplus = c.drop(func(one *conn) bool { return one != own && one.phase < serving }, own)
	}
	c.mu.Unlock()
	surplus.close()
	return own, nil
}

// Read implements net.Conn: a request begins with its first byte.
func (c *conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 {
		c.begun().close()
	}
	return n, err
}

func (c *conn) begun() (surplus *conn) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.phase != idle {
		return nil
	}
	c.phase, c.since = reading, time.Now()
	if c.of.count(reading) <= maxReading {
		return nil
	}
	return c.of.drop(func(one *conn) bool { return one.phase == reading }, c)
}

// CloseWrite is what net/http ends an answer with whose request it did not read.
func (c *conn) CloseWrite() error {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	return tcp.CloseWrite()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close ends a connection that makes room, if there is one; the server notices, and gives it up.
func (c *conn) close() {
	if c != nil {
		_ = c.Conn.Close()
	}
}

type connKey struct{}

// watch has a server say when a connection waits again; serving has to be in the way of its requests.
func (c *conns) watch(s *http.Server) {
	s.ConnContext = func(ctx context.Context, of net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, of)
	}
	s.MaxHeaderBytes = maxHeader
	s.ConnState = func(of net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			of.(*conn).enter(idle)
		}
	}
}

// serving lets a request through whose connection is to stay until it is answered. Where the
// connection had to go nobody could read the answer, which might have been paid for.
func (c *conns) serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !r.Context().Value(connKey{}).(*conn).enter(serving) {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(rw, r)
	})
}

// enter reports whether a connection comes to a phase: not once it is dropped.
func (c *conn) enter(p phase) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.phase == dropped {
		return false
	}
	c.phase, c.since = p, time.Now()
	return true
}

func (c *conns) count(p phase) (n int) {
	for one := range c.all {
		if one.phase == p {
			n++
		}
	}
	return n
}

// drop chooses the connection that makes room: the oldest of those that may, or the one for which
// there is no room.
func (c *conns) drop(may func(*conn) bool, otherwise *conn) *conn {
	var found *conn
	for one := range c.all {
		if may(one) && (found == nil || one.since.Before(found.since)) {
			found = one
		}
	}
	if found == nil {
		found = otherwise
	}
	found.phase = dropped
	return found
}

// pacedWriter gives a visitor writeTime to read each part of an answer: one that reads nothing would
// hold up what is told to all, and memory. Large answers are bounded in sum, too.
type pacedWriter struct {
	http.ResponseWriter
	gate    *gate
	visitor *visitor
}

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *pacedWriter) Write(text []byte) (n int, err error) {
	a := &largeAnswer{size: int64(len(text)), by: http.NewResponseController(p.ResponseWriter)}
	if len(text) > writePart && p.gate != nil {
		defer p.gate.begins(p.visitor, a)()
	}
	for first := true; first || len(text) > 0; first = false {
		part := text[:min(len(text), writePart)]
		if !a.goesOn() {
			return n, errCut
		}
		written, err := p.ResponseWriter.Write(part)
		n += written
		if err != nil {
			return n, err
		}
		text = text[len(part):]
	}
	return n, nil
}

// largeAnswer is one of more than a part, that is being written.
type largeAnswer struct {
	size  int64
	since time.Time
	by    *http.ResponseController

	mu    sync.Mutex
	isCut bool
}

var errCut = errors.New("the answer was read too slowly, and others wait")

// goesOn gives the next part its time; false where the answer had to make room.
func (a *largeAnswer) goesOn() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isCut {
		_ = a.by.SetWriteDeadline(time.Now().Add(writeTime))
	}
	return !a.isCut
}

func (a *largeAnswer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isCut = true
	_ = a.by.SetWriteDeadline(time.Now())
}

// begins counts a large answer until it is written. Of those to visitors who bought nothing the oldest
// are cut where there are too many bytes of them.
func (g *gate) begins(v *visitor, a *largeAnswer) (over func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.bought {
		return func() {}
	}
	a.since = g.now()
	g.answers[a] = true
	for {
		sum, oldest := int64(0), a
		for one := range g.answers {
			sum += one.size
			if one.since.Before(oldest.since) {
				oldest = one
			}
		}
		if sum <= guestAnswers || oldest == a {
			break
		}
		delete(g.answers, oldest)
		oldest.cut()
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.answers, a)
	}
}
