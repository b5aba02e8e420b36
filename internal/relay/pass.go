package relay

import (
	"bufio"
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
		WithHint("start it (x402-wallet serve), or name another: X402_WALLET_SERVICE")
}

// dialTime bounds the wait for a service that is there to answer.
const dialTime = 10 * time.Second

// Pass passes a host's streams on to the service behind a socket until one side ends the session. home is
// where the service's own user finds the secret to show. The end of in ends the session with what the service
// still has to say. The errors are ErrNone, the service's refusal, and SERVER_UNAVAILABLE where the service
// is gone before the host is.
func Pass(ctx context.Context, path, home string, hello Hello, in io.Reader, out io.Writer) error {
	conn, err := connect(ctx, path, home)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	p := &passing{conn: conn, from: bufio.NewReaderSize(conn, maxFrame), hostGone: make(chan struct{})}
	if err := p.begin(hello); err != nil {
		return err
	}
	go p.fromHost(in)
	err = p.toHost(out)
	if errors.Is(err, errHost) || p.hostEnded() || ctx.Err() != nil {
		return nil // the service hears of it by the connection
	}
	return x402.Errorf(x402.ServerUnavailable, "the wallet's service ended the session").
		WithHint("start the session again; a payment that was sent stays held, and the very same call " +
			"goes on with it")
}

func connect(ctx context.Context, path, home string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := socket.Dial(ctx, path, home)
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

type passing struct {
	conn     net.Conn
	from     *bufio.Reader
	hostGone chan struct{} // closed when the host said all that it will

	mu sync.Mutex // whole frames
}

// errHost says that the host reads no more.
var errHost = errors.New("the host reads no more")

// begin says who asks, and hears whether the session begins.
func (p *passing) begin(hello Hello) error {
	_ = p.conn.SetDeadline(time.Now().Add(dialTime))
	body, _ := json.Marshal(hello) // a text
	if err := p.send(frameHello, body); err != nil {
		return unreachable(err)
	}
	if err := readReply(p.from); err != nil {
		return err
	}
	return p.conn.SetDeadline(time.Time{})
}

func (p *passing) send(kind byte, body []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return writeFrame(p.conn, kind, body)
}

// fromHost passes on what the host says, and says when it ends. An error in it is heard of where the
// service's answers are read.
func (p *passing) fromHost(in io.Reader) {
	for buffer := make([]byte, maxFrame); ; {
		n, err := in.Read(buffer)
		if n > 0 {
			_ = p.send(frameData, buffer[:n])
		}
		if err != nil {
			break
		}
	}
	close(p.hostGone)
	_ = p.send(frameEnd, nil)
}

func (p *passing) hostEnded() bool {
	select {
	case <-p.hostGone:
		return true
	default:
		return false
	}
}

// toHost passes on what the service says, and says so: after it was written, and not before.
func (p *passing) toHost(out io.Writer) error {
	passed := uint64(0)
	for buffer := make([]byte, maxFrame); ; {
		n, err := p.from.Read(buffer)
		if n > 0 {
			if written, err := out.Write(buffer[:n]); err != nil || written < n {
				return errHost
			}
			passed += uint64(n)
			if err := p.send(framePassed, binary.BigEndian.AppendUint64(nil, passed)); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}
