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
	// maxReading is how many connections may be in the middle of their headers: as they come they
	// take many times their size.
	maxReading = 64
)

// conns bounds the connections of an http.Server. The oldest on which nothing is served makes room
// for the next.
type conns struct {
	most int

	mu  sync.Mutex
	all map[net.Conn]*conn
}

type conn struct {
	phase phase
	since time.Time
}

type phase uint8

const (
	fresh   phase = iota // nothing came yet
	reading              // in the middle of a request's headers
	serving              // from there until its answer is written
	idle                 // between two requests
)

type connKey struct{}

// watch makes a server's connections known.
func (c *conns) watch(s *http.Server) {
	c.all = map[net.Conn]*conn{}
	s.ConnState, s.MaxHeaderBytes = c.change, maxHeader
	s.ConnContext = func(ctx context.Context, of net.Conn) context.Context {
		c.mu.Lock()
		defer c.mu.Unlock()
		return context.WithValue(ctx, connKey{}, c.all[of])
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		own, _ := r.Context().Value(connKey{}).(*conn)
		if own != nil { // or it was let go when it came
			c.mu.Lock()
			own.phase = serving
			c.mu.Unlock()
		}
		next.ServeHTTP(rw, r)
	})
}

// change follows a connection's state, and closes another one where there are too many.
func (c *conns) change(of net.Conn, state http.ConnState) {
	if surplus := c.follow(of, state); surplus != nil {
		_ = surplus.Close()
	}
}

func (c *conns) follow(of net.Conn, state http.ConnState) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.all[of]
	if own == nil {
		own = &conn{}
		c.all[of] = own
	}
	own.since = time.Now()
	switch state {
	case http.StateActive:
		own.phase = reading
		if inPhase(c.all, reading) > maxReading {
			return c.oldest(func(p phase) bool { return p == reading })
		}
	case http.StateIdle:
		own.phase = idle
	case http.StateClosed, http.StateHijacked:
		delete(c.all, of)
	case http.StateNew:
		if len(c.all) <= c.most {
			return nil
		}
		// whatever it waits for: who is in the middle of a request has not been for long
		surplus = c.oldest(func(p phase) bool { return p != serving })
		if surplus == nil {
			return of
		}
		return surplus
	}
	return nil
}

func inPhase(all map[net.Conn]*conn, p phase) (n int) {
	for _, one := range all {
		if one.phase == p {
			n++
		}
	}
	return n
}

func (c *conns) oldest(may func(phase) bool) (found net.Conn) {
	for of, one := range c.all {
		if may(one.phase) && (found == nil || one.since.Before(c.all[found].since)) {
			found = of
		}
	}
	return found
}

// pacedWriter gives a visitor writeTime to read each part of an answer: one that reads nothing would
// hold up what is told to all, and memory.
type pacedWriter struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *pacedWriter) Write(text []byte) (n int, err error) {
	control := http.NewResponseController(p.ResponseWriter)
	for first := true; first || len(text) > 0; first = false {
		part := text[:min(len(text), writePart)]
		_ = control.SetWriteDeadline(time.Now().Add(writeTime))
		written, err := p.ResponseWriter.Write(part)
		n += written
		if err != nil {
			return n, err
		}
		text = text[len(part):]
	}
	return n, nil
}
