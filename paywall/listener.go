package paywall

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxHeader bounds a request's headers, of which a payment is the longest.
	maxHeader = 16 << 10
	// maxReading bounds the connections whose request is being read: while headers are parsed they take many
	// times their size in memory.
	maxReading = 64
	// sendBuffer is the size of a socket's send buffer; the system's default grows to 4 MiB.
	sendBuffer = 128 << 10
)

// limitListener is a net.Listener that limits its open connections. The oldest connection without a running
// request is closed to make room for a new one.
type limitListener struct {
	net.Listener
	maxConns int

	mu    sync.Mutex
	conns map[*conn]struct{}
}

type conn struct {
	net.Conn
	listener *limitListener
	phase    phase
	since    time.Time // when the phase began
}

type phase uint8

const (
	idle    phase = iota // waiting for a request
	reading              // a request is being read
	serving              // a request is being served, until its response is written
	dropped              // chosen to be closed: nothing more is served on it
)

func newLimitListener(l net.Listener, maxConns int) *limitListener {
	return &limitListener{Listener: l, maxConns: maxConns, conns: map[*conn]struct{}{}}
}

func (c *limitListener) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer)
	}
	own := &conn{Conn: accepted, listener: c, since: time.Now()}
	c.mu.Lock()
	c.conns[own] = struct{}{}
	var surplus *conn
	if len(c.conns)-c.count(dropped) > c.maxConns {
		// idle or reading alike: a request has not been read for long
		surplus = c.dropOldest(func(one *conn) bool { return one != own && one.phase < serving }, own)
	}
	c.mu.Unlock()
	surplus.close()
	return own, nil
}

// Read implements net.Conn. The first byte begins a request.
func (c *conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 {
		c.requestBegun().close()
	}
	return n, err
}

func (c *conn) requestBegun() (surplus *conn) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.phase != idle {
		return nil
	}
	c.phase, c.since = reading, time.Now()
	if c.listener.count(reading) <= maxReading {
		return nil
	}
	return c.listener.dropOldest(func(one *conn) bool { return one.phase == reading }, c)
}

// CloseWrite is called by net/http after a response to a request that it did not read completely.
func (c *conn) CloseWrite() error {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	return tcp.CloseWrite()
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// close closes a connection that was chosen to make room; c may be nil.
func (c *conn) close() {
	if c != nil {
		_ = c.Conn.Close()
	}
}

type connKey struct{}

// watch makes a server report when a connection becomes idle. Its handler must be wrapped in markServing.
func (c *limitListener) watch(s *http.Server) {
	s.ConnContext = func(ctx context.Context, accepted net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, accepted)
	}
	s.MaxHeaderBytes = maxHeader
	s.ConnState = func(accepted net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			accepted.(*conn).setPhase(idle)
		}
	}
}

// markServing is the middleware that keeps the connection of a request open until it is answered. On a
// connection that was chosen to be closed the request is not served: nobody could read the response, which
// might have been paid for.
func (c *limitListener) markServing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !r.Context().Value(connKey{}).(*conn).setPhase(serving) {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(rw, r)
	})
}

// setPhase moves a connection to another phase; false if it was dropped.
func (c *conn) setPhase(p phase) bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.phase == dropped {
		return false
	}
	c.phase, c.since = p, time.Now()
	return true
}

func (c *limitListener) count(p phase) (n int) {
	for one := range c.conns {
		if one.phase == p {
			n++
		}
	}
	return n
}

// dropOldest chooses the connection that makes room: the oldest of those that mayDrop reports, or else
// fallback.
func (c *limitListener) dropOldest(mayDrop func(*conn) bool, fallback *conn) *conn {
	var found *conn
	for one := range c.conns {
		if mayDrop(one) && (found == nil || one.since.Before(found.since)) {
			found = one
		}
	}
	if found == nil {
		found = fallback
	}
	found.phase = dropped
	return found
}
