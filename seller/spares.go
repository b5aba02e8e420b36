package seller

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// spareLife is how long a spare connection is there to be taken: shorter than the 5 s after which
	// many servers end a connection on which nothing is said.
	spareLife = 4 * time.Second
	// maxSpares and maxSparesOfOne bound spares that nobody took, overall and of one seller.
	maxSpares, maxSparesOfOne = 32, 8
	// maxSellers bounds how many sellers are remembered.
	maxSellers = 1024
)

// spares are connections over TLS that are dialled before there is a request for them, so that a payment
// need not wait for a handshake.
//
// What must stay true: a spare is dialled under the rules of every dial; it has carried no request when it
// is taken, and is taken once; none is taken on which the seller said anything or which it ended.
//
// Sellers, known by host:port, get spares where they asked for money before, and the first time that they
// are asked at all. Over http:// there are none: those are near, and may serve one connection at a time.
type spares struct {
	dial dialFunc
	life time.Duration // spareLife
	open context.Context
	end  context.CancelFunc
	all  sync.WaitGroup // of spares that may still be read from

	mu      sync.Mutex
	free    map[string][]*spare // by address; those that are being dialled, too
	count   int                 // of all that are free
	sellers map[string]*acquaintance
	closed  bool
}

// acquaintance is what is known of a seller.
type acquaintance struct {
	questions int // under way
	asked     bool
	sells     bool // it asked for money
}

// spare is a connection that nothing was sent on.
type spare struct {
	address string
	dialled chan struct{} // closed when conn or err is known
	conn    net.Conn
	err     error
	over    chan struct{} // closed when it is read from no more
	isQuiet bool          // it was read from in vain; known then
}

func newSpares(dial dialFunc) *spares {
	s := &spares{dial: dial, life: spareLife, free: map[string][]*spare{},
		sellers: map[string]*acquaintance{}}
	s.open, s.end = context.WithCancel(context.Background())
	return s
}

// asking says that a question leaves, which takes spares itself, or none; a payment may follow it.
// What is returned is called with the answer, nil if there is none.
func (s *spares) asking(address string, itself int) (answered func(*Answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.acquaint(address)
	known.questions++
	switch {
	case known.sells: // one for the next call: dialling takes longer than a question on a kept connection
		s.want(address, known.questions+itself+1)
	case !known.asked:
		s.want(address, known.questions+itself)
	}
	return func(a *Answer) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a != nil {
			known.asked = true
			if a.Challenge != nil {
				known.sells = true
				s.want(address, known.questions)
			}
		}
		known.questions--
	}
}

// expect dials ahead for a next call, which will need so many connections.
func (s *spares) expect(address string, needed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want(address, s.acquaint(address).questions+needed)
}

// acquaint finds a seller, who may be new. s.mu is held.
func (s *spares) acquaint(address string) *acquaintance {
	if known := s.sellers[address]; known != nil {
		return known
	}
	for other, known := range s.sellers {
		if len(s.sellers) < maxSellers {
			break
		}
		if known.questions == 0 {
			delete(s.sellers, other)
		}
	}
	known := &acquaintance{}
	s.sellers[address] = known
	return known
}

// want dials until a seller has n spares, within the bounds. s.mu is held.
func (s *spares) want(address string, n int) {
	for !s.closed && s.count < maxSpares && len(s.free[address]) < min(n, maxSparesOfOne) {
		one := &spare{address: address, dialled: make(chan struct{}), over: make(chan struct{})}
		s.free[address] = append(s.free[address], one)
		s.count++
		s.all.Go(func() { s.keep(one) })
	}
}

// keep dials a spare and reads from it until it is taken, ends, or its life does. The reading takes in what
// is TLS's own, as the sessions to resume.
func (s *spares) keep(one *spare) {
	one.conn, one.err = s.dial(s.open, "tcp", one.address)
	if one.err == nil { // before anybody has it: whoever takes it sets another
		one.err = one.conn.SetReadDeadline(time.Now().Add(s.life))
	}
	close(one.dialled)
	if one.err == nil {
		one.isQuiet = saysNothing(one.conn)
	}
	close(one.over)
	if s.remove(one) && one.conn != nil {
		_ = one.conn.Close()
	}
}

// saysNothing reads until the deadline, and reports whether there was nothing, not even the end.
func saysNothing(conn net.Conn) bool {
	n, err := conn.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// remove reports whether a spare was still free. It is not, afterwards.
func (s *spares) remove(one *spare) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.free[one.address]
	for i := range list {
		if list[i] == one {
			s.takeOut(one.address, i)
			return true
		}
	}
	return false
}

// takeOut makes the i-th spare of a seller the caller's. s.mu is held.
func (s *spares) takeOut(address string, i int) *spare {
	list := s.free[address]
	one := list[i]
	s.count--
	if len(list) == 1 {
		delete(s.free, address)
		return one
	}
	s.free[address] = append(list[:i:i], list[i+1:]...)
	return one
}

// take gives a connection to a seller that is as if it had just been dialled, and is the caller's; nil if
// there is none. It waits for one that is being dialled: the error is why that failed.
func (s *spares) take(address string) (net.Conn, error) {
	for {
		one := s.pick(address)
		if one == nil {
			return nil, nil
		}
		<-one.dialled
		switch {
		case one.conn == nil:
			return nil, one.err
		case one.isFresh():
			return one.conn, nil
		}
		_ = one.conn.Close()
	}
}

// pick takes a spare out, rather one that is not being dialled any more.
func (s *spares) pick(address string) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.free[address] {
		select {
		case <-one.dialled:
			return s.takeOut(address, i)
		default:
		}
	}
	if len(s.free[address]) > 0 {
		return s.takeOut(address, 0)
	}
	return nil
}

// isFresh ends the reading, and reports whether the seller neither said anything nor ended the connection.
func (one *spare) isFresh() bool {
	if one.err != nil || one.conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	<-one.over
	encrypted, isTLS := one.conn.(*tls.Conn)
	raw := one.conn
	if isTLS {
		raw = encrypted.NetConn()
	}
	const patience = 100 * time.Millisecond
	for wait := time.Millisecond; one.isQuiet; wait *= 2 {
		waiting, err := unread(raw)
		switch {
		case err != nil:
			return false
		case !waiting:
			return one.conn.SetReadDeadline(time.Time{}) == nil
		case !isTLS || wait > patience:
			return false
		}
		// it may be TLS's own, which comes half a round trip after the handshake
		if one.conn.SetReadDeadline(time.Now().Add(wait)) != nil {
			return false
		}
		one.isQuiet = saysNothing(one.conn)
	}
	return false
}

// close ends all that are free, and waits for those that are being dialled. There are none from then on.
func (s *spares) close() {
	s.mu.Lock()
	var left []*spare
	for _, list := range s.free {
		left = append(left, list...)
	}
	s.free, s.count, s.closed = map[string][]*spare{}, 0, true
	s.mu.Unlock()
	s.end()
	for _, one := range left {
		<-one.dialled
		if one.conn != nil {
			_ = one.conn.Close()
		}
	}
	s.all.Wait()
}
