//go:build !race

package pay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"time"
)

// A process's wire to the server, in virtual time: an answer takes none of it, unless the wire fails.

// The ways in which a wire fails, as the scheduler draws them for a change of the ledger: at one of its
// statements.
const (
	cutBefore = "its wire is cut"                   // and the server never gets the statement
	cutAfter  = "its wire is cut after it was done" // and nobody hears that
	late      = "its answer is late"                // whatever happens meanwhile, and however long that takes
	diesAt    = "and the process dies before a statement"
	diesAfter = "and the process dies before it hears of a statement"
)

// wireFault is a way to fail that waits for its statement.
type wireFault struct {
	what string
	nth  int // of the statements to come
	ctx  context.Context
}

// session is one with the server. It outlives the process that has it, as with a pooler: a new one has to
// plan all functions again.
type session struct {
	conn  net.Conn
	from  *bufio.Reader
	hello []byte // what the server said to who came first; nil: nobody came yet, or it said no
	// failed: it is not to be used again
	failed bool
}

// simWire is a connection of a process. The answer to what is written is read at once, so that nobody waits
// for the network while time may pass.
type simWire struct {
	s        *sim
	p        *process // nil: the umpire
	to       *session // nil: cut, or given back
	in       []byte   // was answered, and not read
	late     bool     // and is not there yet
	greeted  bool
	status   byte // of the transaction
	deadline time.Time
}

var errCut = errors.New("the wire is cut")

// dial connects a process to the server. Whoever has to connect again in a call may be late for it, or dead
// by then.
func (s *sim) dial(ctx context.Context, p *process) (net.Conn, error) {
	if _, calls := ctx.Value(actorKey{}).(*actor); calls && p != nil && p.wasCut {
		s.at(ctx, p, "connects again")
	}
	if p != nil && (p.dead.Load() || p.away) {
		return nil, errCut
	}
	to, err := s.g.server.session()
	if err != nil {
		return nil, err
	}
	w := &simWire{s: s, p: p, to: to, status: 'I'}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wires = append(s.wires, w)
	return w, nil
}

// cutWires is what becomes of a process's connections when it dies; nil: of the umpire's.
func (s *sim) cutWires(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wires {
		if w.p == p {
			w.cut()
		}
	}
}

// cut ends the connection. The server undoes what was begun at once, and not when it gets to it, so that a
// world is the same whenever it is run.
func (w *simWire) cut() {
	if w.to == nil {
		return
	}
	if w.status != 'I' {
		w.to.failed = w.exchange([]byte("Q\x00\x00\x00\x0dROLLBACK\x00"), 1) != nil
	}
	w.s.g.server.keep(w.to)
	w.to, w.in = nil, nil
}

// Write implements net.Conn.
func (w *simWire) Write(b []byte) (int, error) {
	const terminate = 'X'
	switch {
	case w.to == nil:
		return 0, errCut
	case !w.greeted:
		return len(b), w.greet(b)
	case b[0] == terminate: // Close says what becomes of the session
		return len(b), nil
	}
	answers := readyAfter(b)
	what := w.faultOf(b, answers)
	if what != "" {
		w.p.wasCut = true
	}
	if what == cutBefore || what == diesAt {
		w.cut()
		w.end(what)
		return 0, errCut
	}
	w.s.tellTime()
	if err := w.exchange(b, answers); err != nil {
		return 0, err
	}
	if what != "" {
		w.s.hear()
	}
	switch what {
	case cutAfter, diesAfter:
		w.cut()
		w.end(what)
	case late:
		w.late = w.status == 'I' // else others might wait for its locks, and for no time
	}
	return len(b), nil
}

// exchange says something to the server, and reads its answers.
func (w *simWire) exchange(b []byte, answers int) error {
	_, err := w.to.conn.Write(b)
	for ; err == nil && answers > 0; answers-- {
		err = w.read()
	}
	w.to.failed = err != nil
	return err
}

// end is the process's, if that is the fault.
func (w *simWire) end(what string) {
	if what == diesAt || what == diesAfter {
		w.s.kill(w.p)
		runtime.Goexit()
	}
}

// faultOf is how the wire fails at these statements; "": not at all. Those of a heartbeat do not count: who
// waits for it would wait without an end.
func (w *simWire) faultOf(b []byte, answers int) string {
	if w.p == nil || w.p.fault.nth == 0 || answers == 0 || bytes.Contains(b, []byte("SELECT beat(")) {
		return ""
	}
	w.p.fault.nth--
	if w.p.fault.nth > 0 {
		return ""
	}
	w.s.say("      %s", w.p.fault.what)
	w.s.failed++
	return w.p.fault.what
}

// greet opens the session, or says what the server said when it did.
func (w *simWire) greet(startup []byte) error {
	const cancelRequest = 80877102 // as a message's first number, behind its length
	w.greeted = true
	if len(startup) >= 8 && binary.BigEndian.Uint32(startup[4:]) == cancelRequest {
		return errCut
	}
	if w.to.hello != nil {
		w.in = w.to.hello
		return nil
	}
	err := w.exchange(startup, 1)
	if bytes.HasSuffix(w.in, []byte("Z\x00\x00\x00\x05I")) {
		w.to.hello = slices.Clip(w.in)
	}
	return err
}

// read reads up to where the server is ready for more.
func (w *simWire) read() error {
	const header = 5
	for {
		message, err := w.to.from.Peek(header)
		if err != nil {
			return err
		}
		kind, length := message[0], int(binary.BigEndian.Uint32(message[1:]))
		at := len(w.in)
		w.in = append(w.in, make([]byte, 1+length)...)
		if _, err := io.ReadFull(w.to.from, w.in[at:]); err != nil {
			return err
		}
		switch kind {
		case 'Z':
			w.status = w.in[len(w.in)-1]
			return nil
		case 'E':
			if w.to.hello == nil {
				return nil
			}
		}
	}
}

// readyAfter is how often the server will say that it is ready for more.
func readyAfter(messages []byte) (n int) {
	for len(messages) > 0 {
		if messages[0] == 'S' || messages[0] == 'Q' {
			n++
		}
		messages = messages[1+binary.BigEndian.Uint32(messages[1:]):]
	}
	return n
}

// Read implements net.Conn. Where nothing was asked nothing comes, and nobody waits for it.
func (w *simWire) Read(b []byte) (int, error) {
	if w.late {
		w.late = false
		w.s.at(w.p.fault.ctx, w.p, "hears of it")
	}
	switch {
	case w.to == nil:
		return 0, io.EOF
	case !w.deadline.IsZero() && !time.Now().Before(w.deadline), len(w.in) == 0:
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(b, w.in)
	w.in = w.in[n:]
	return n, nil
}

// Close implements net.Conn.
func (w *simWire) Close() error {
	w.cut()
	return nil
}

// SetDeadline implements net.Conn.
func (w *simWire) SetDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

// SetReadDeadline implements net.Conn.
func (w *simWire) SetReadDeadline(t time.Time) error { return w.SetDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (w *simWire) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements net.Conn.
func (w *simWire) LocalAddr() net.Addr { return &net.UnixAddr{} }

// RemoteAddr implements net.Conn.
func (w *simWire) RemoteAddr() net.Addr { return &net.UnixAddr{} }
