package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"x402-wallet/internal/socket"
)

const (
	// helloTime is how long who connected may take to say who it is.
	helloTime = 5 * time.Second
	// writeTime is how long a host may not read before its session ends: an answer waits in the socket's
	// buffer, and what does not fit there would hold up the messages that go to all sessions.
	writeTime = 20 * time.Second
	// closeTime is how long the end of a session waits for the relay to say what it has passed on.
	closeTime = 2 * time.Second
)

// Session is the service's side of a relay: the streams of one host. Its Read, Write, OnPassed and Close
// may be called at the same time.
type Session struct {
	User  socket.User // of the relay's process
	Token string      // the agent's; "" where it has none
	// Account is the one that the host wants to pay from; "" where it names none.
	Account string
	// Handed is a command of the owner's, instead of the streams of a host: Take and Ended are for it. nil:
	// it is none.
	Handed *Handed

	conn net.Conn
	in   *io.PipeReader
	fed  *io.PipeWriter
	over chan struct{} // closed when the relay says nothing any more

	mu      sync.Mutex
	written uint64
	passed  uint64
	waiting []waiting
	closing sync.Once
}

// waiting is who wants to know whether what was written up to a byte was passed on.
type waiting struct {
	upTo uint64
	f    func(passed bool)
}

// Open reads who connected. The session begins with Admit; else Refuse ends it. An error has closed conn.
func Open(conn net.Conn) (*Session, error) {
	s := &Session{conn: conn, over: make(chan struct{})}
	s.in, s.fed = io.Pipe()
	if err := s.hello(); err != nil {
		s.Handed.Close()
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

func (s *Session) hello() (err error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(helloTime))
	kind, body, files, err := s.firstFrame()
	if err != nil {
		return err
	}
	s.User, err = socket.Peer(s.conn) // now that something was read
	if err != nil {
		(&Handed{Files: files}).Close()
		return err
	}
	switch kind {
	case frameCommand:
		s.Handed, err = parseHanded(body, files)
	case frameHello:
		(&Handed{Files: files}).Close() // nobody asked for them
		var hello Hello
		hello, err = parseHello(body)
		s.Token, s.Account = hello.Token, hello.Account
	default:
		(&Handed{Files: files}).Close()
		err = fmt.Errorf("it begins with a frame %q", kind)
	}
	return errors.Join(err, s.conn.SetReadDeadline(time.Time{}))
}

// firstFrame reads the frame with which files may come.
func (s *Session) firstFrame() (kind byte, body []byte, files []*os.File, err error) {
	var head [headSize]byte
	n, files, err := readFiles(s.conn, head[:])
	if err == nil {
		_, err = io.ReadFull(s.conn, head[n:])
	}
	if err == nil {
		kind, body, err = readBody(s.conn, head, make([]byte, maxFrame))
	}
	if err != nil {
		(&Handed{Files: files}).Close()
		return 0, nil, nil, err
	}
	return kind, body, files, nil
}

func (s *Session) Admit() error {
	go s.receive()
	return s.writeLine(nil)
}

// Refuse ends the session before it began, and tells the host's side why.
func (s *Session) Refuse(why error) error {
	s.Handed.Close()
	return errors.Join(s.writeLine(why), s.conn.Close())
}

func (s *Session) writeLine(refused error) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := s.conn.Write(encodeReply(refused))
	return err
}

// receive takes the relay's frames apart until it ends.
func (s *Session) receive() {
	err := s.frames()
	_ = s.fed.CloseWithError(err)
	s.mu.Lock()
	rest := s.waiting
	s.waiting = nil
	close(s.over)
	s.mu.Unlock()
	for _, w := range rest {
		w.f(false)
	}
}

func (s *Session) frames() error {
	for buffer := make([]byte, maxFrame); ; {
		kind, body, err := readFrame(s.conn, buffer)
		if err != nil {
			return io.EOF // whatever ended it: the host is gone
		}
		switch {
		case kind == frameData:
			_, _ = s.fed.Write(body) // after Close nobody reads any more
		case kind == frameEnd:
			_ = s.fed.Close()
		case kind == framePassed && len(body) == 8:
			s.pass(binary.BigEndian.Uint64(body))
		default:
			return fmt.Errorf("a frame %q of %d bytes", kind, len(body))
		}
	}
}

// pass notes how much the host has.
func (s *Session) pass(upTo uint64) {
	s.mu.Lock()
	s.passed = min(upTo, s.written)
	var reached []waiting
	for len(s.waiting) > 0 && s.waiting[0].upTo <= s.passed {
		reached, s.waiting = append(reached, s.waiting[0]), s.waiting[1:]
	}
	s.mu.Unlock()
	for _, w := range reached {
		w.f(true)
	}
}

// Read gives what the host says. io.EOF: it says no more, or is gone.
func (s *Session) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write sends something to the host.
func (s *Session) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.written += uint64(len(p)) // before: the relay may have passed it on before Write returns
	s.mu.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
	return s.conn.Write(p)
}

// OnPassed has f called once: when all that was written so far has been written to the host, or when that
// will not be heard of any more. f must not block.
func (s *Session) OnPassed(f func(passed bool)) {
	s.mu.Lock()
	isPassed := s.passed >= s.written
	select {
	case <-s.over:
	default:
		if !isPassed {
			s.waiting = append(s.waiting, waiting{upTo: s.written, f: f})
			s.mu.Unlock()
			return
		}
	}
	s.mu.Unlock()
	f(isPassed)
}

// Close ends the session. It waits a moment to hear what of the last answers was passed on.
func (s *Session) Close() (err error) {
	s.closing.Do(func() {
		_ = s.in.Close() // receive is not held up by what nobody reads
		passed := make(chan struct{})
		if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the relay passes on what is left, and hangs up
		} else {
			s.OnPassed(func(bool) { close(passed) })
		}
		select {
		case <-s.over:
		case <-passed:
		case <-time.After(closeTime):
		}
		err = s.conn.Close()
		<-s.over
	})
	return err
}
