package relay

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"x402-wallet/internal/socket"
	"x402-wallet/x402"
)

// ErrNone says that no service listens on a socket.
var ErrNone = errors.New("no service listens there")

// NoneAt is SERVER_UNAVAILABLE, where one was expected.
func NoneAt(path string) error {
	return x402.Errorf(x402.ServerUnavailable, "no wallet's service listens at %s", path).
		WithHint("start it (x402-wallet serve), or name another: X402_WALLET_SERVICE, or in a fleet the " +
			"signer of join.json")
}

// dialTime bounds the wait for a service that is there to answer.
const dialTime = 10 * time.Second

// Pass passes a host's streams on to the service behind a socket until one side ends the session. The end
// of in ends it with what the service still has to say. Where the service is gone before the host is, it is
// waited for (again.go). The errors are ErrNone, the service's refusal, and SERVER_UNAVAILABLE where it
// does not come back.
func Pass(ctx context.Context, path string, hello Hello, in io.Reader, out io.Writer) error {
	return newPassing(path, hello, out, patience).pass(ctx, in)
}

func (p *passing) pass(ctx context.Context, in io.Reader) error {
	l, err := p.open(ctx)
	if err != nil {
		return err
	}
	p.use(l)
	defer p.end()
	go p.fromHost(in)
	for w := (waits{patience: p.patience}); ; {
		w.opened()
		err := p.toHost(l)
		l.close()
		if errors.Is(err, errHost) || p.hostEnded() || ctx.Err() != nil {
			return nil // the service hears of it by the connection
		}
		l, err = p.again(ctx, &w)
		if errors.Is(err, errHost) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func connect(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := socket.Dial(ctx, path)
	switch {
	case errors.Is(err, socket.ErrNone):
		return nil, ErrNone
	case err != nil:
		return nil, unreachable(err)
	}
	return conn, nil
}

func unreachable(err error) error {
	return x402.Errorf(x402.ServerUnavailable, "the wallet's service does not answer: %w", err).
		WithHint("x402-wallet service status says what it does")
}

// passing is one session of a host, with one service after the other.
type passing struct {
	path     string
	hello    Hello
	out      io.Writer
	patience time.Duration

	hostGone chan struct{} // closed when the host said all that it will

	mu   sync.Mutex
	some *sync.Cond // there is a link, or no other comes
	link *link      // nil: there is none
	over bool       // and none comes any more
	talk talk
}

func newPassing(path string, hello Hello, out io.Writer, patience time.Duration) *passing {
	p := &passing{path: path, hello: hello, out: out, patience: patience, hostGone: make(chan struct{}),
		talk: newTalk()}
	p.some = sync.NewCond(&p.mu)
	return p
}

// link is a connection with a service.
type link struct {
	conn   net.Conn
	close  func()
	from   lines
	passed uint64 // bytes of the service's that the host has

	mu sync.Mutex // whole frames
}

// errHost says that the host reads no more.
var errHost = errors.New("the host reads no more")

// open says who asks, and hears whether the session begins.
func (p *passing) open(ctx context.Context) (*link, error) {
	conn, err := connect(ctx, p.path)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, from: newLines(conn)}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	l.close = func() { stop(); _ = conn.Close() }
	if err := l.begin(p.hello); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *link) begin(hello Hello) error {
	_ = l.conn.SetDeadline(time.Now().Add(dialTime))
	body, _ := json.Marshal(hello) // a text
	if err := l.send(frameHello, body); err != nil {
		return unreachable(err)
	}
	line, err := l.from.next()
	if err != nil {
		return unreachable(err)
	}
	var answer reply
	if err := json.Unmarshal(line, &answer); err != nil {
		return unreachable(errors.New("it is no service of this version"))
	}
	if e := answer.Error; e != nil {
		return x402.Errorf(e.Code, "%s", e.Message).WithHint("%s", e.Hint)
	}
	return l.conn.SetDeadline(time.Time{})
}

func (l *link) send(kind byte, body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return writeFrame(l.conn, kind, body)
}

// say sends a line of the host's.
func (l *link) say(line []byte) error {
	for len(line) > 0 {
		n := min(len(line), maxFrame)
		if err := l.send(frameData, line[:n]); err != nil {
			return err
		}
		line = line[n:]
	}
	return nil
}

// passedOn tells the service that the host has so many more bytes.
func (l *link) passedOn(bytes int) error {
	l.passed += uint64(bytes)
	return l.send(framePassed, binary.BigEndian.AppendUint64(nil, l.passed))
}

// use makes a link the one that the host's lines go to.
func (p *passing) use(l *link) {
	p.mu.Lock()
	p.link = l
	p.some.Broadcast()
	p.mu.Unlock()
	if p.hostEnded() {
		_ = l.send(frameEnd, nil)
	}
}

// end lets nobody wait for a link any more.
func (p *passing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link, p.over = nil, true
	p.some.Broadcast()
}

// fromHost passes on what the host says, and says when it ends. An error in it is heard of where the
// service's answers are read.
func (p *passing) fromHost(in io.Reader) {
	for from := newLines(in); ; {
		line, err := from.next()
		if len(line) > 0 {
			if l := p.heard(line); l != nil {
				_ = l.say(line)
			}
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	close(p.hostGone)
	l := p.link
	p.mu.Unlock()
	if l != nil {
		_ = l.send(frameEnd, nil)
	}
}

// heard notes a line of the host's, and gives the link that it goes to, for which it waits; nil: to none.
func (p *passing) heard(line []byte) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.link == nil && !p.over {
		p.some.Wait()
	}
	if !p.talk.hostSays(line) {
		return nil
	}
	return p.link
}

func (p *passing) hostEnded() bool {
	select {
	case <-p.hostGone:
		return true
	default:
		return false
	}
}

// toHost passes on what the service says, in whole lines, and says so: after it was written, and not before.
func (p *passing) toHost(l *link) error {
	for {
		line, err := l.from.next()
		if err != nil {
			return io.EOF // what has no end yet is said to nobody
		}
		p.mu.Lock()
		p.talk.serviceSays(line)
		p.mu.Unlock()
		if err := p.tell(line); err != nil {
			return err
		}
		if l.passedOn(len(line)) != nil {
			return io.EOF
		}
	}
}

// tell writes a line to the host.
func (p *passing) tell(line []byte) error {
	if written, err := p.out.Write(line); err != nil || written < len(line) {
		return errHost
	}
	return nil
}
