package seller

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// pipes dials connections without a network.
type pipes struct {
	sync.Mutex
	theirs []net.Conn
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.Lock()
	defer p.Unlock()
	p.theirs = append(p.theirs, theirs)
	return ours, nil
}

// askedOnce is a question with its answer.
func (s *spares) askedOnce(address string, a *Answer) { s.asking(address, 0)(a) }

var (
	forMoney = &Answer{Challenge: &x402.Challenge{}}
	forFree  = &Answer{Status: 200}
)

func TestASpareIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpares((&pipes{}).dial)
		defer s.close()
		s.expect("a", 2)
		synctest.Wait()
		first, err := s.take("a")
		require.NoError(t, err)
		second, err := s.take("a")
		require.NoError(t, err)
		require.True(t, first != second)
		third, err := s.take("a")
		require.NoError(t, err)
		assert.Nil(t, third)
		other, err := s.take("b")
		require.NoError(t, err)
		assert.Nil(t, other)
		for _, conn := range []net.Conn{first, second} { // nobody else reads from it, and it has no end
			go func() { time.Sleep(time.Hour); _ = conn.Close() }()
			_, err := conn.Read(make([]byte, 1))
			assert.ErrorIs(t, err, io.ErrClosedPipe)
		}
	})
}

// A spare that nobody took is ended before the seller might, with all that was started for it.
func TestASpareIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{}
		s := newSpares(p.dial)
		s.expect("a", 1)
		time.Sleep(spareLife - time.Nanosecond)
		synctest.Wait()
		assert.Len(t, s.list(), 1)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Empty(t, s.list())
		assert.Zero(t, s.count)
		_, err := p.theirs[0].Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)

		s.expect("a", 1)
		synctest.Wait()
		s.close()
		_, err = p.theirs[1].Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)
		s.expect("a", 1)
		assert.Empty(t, s.list())
	})
}

func TestSparesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{}
		s := newSpares(p.dial)
		defer s.close()
		s.expect("a", 100)
		synctest.Wait()
		assert.Len(t, p.theirs, maxSparesOfOne)
		for i := range maxSpares {
			s.expect(fmt.Sprint(i), 1)
			synctest.Wait()
		}
		assert.Len(t, p.theirs, maxSpares)
		for i := range maxSellers {
			s.askedOnce(fmt.Sprint("seller ", i), forFree)
		}
		assert.Len(t, s.sellers, maxSellers)
	})
}

// Only who asks for money gets spares, and who was not asked before: a payment may follow.
func TestWhoGetsSpares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{}
		s := newSpares(p.dial)
		defer s.close()
		dialled := func(a *Answer) int {
			before := len(p.theirs)
			s.askedOnce("a", a)
			synctest.Wait()
			for conn, _ := s.take("a"); conn != nil; conn, _ = s.take("a") {
				_ = conn.Close()
			}
			return len(p.theirs) - before
		}
		assert.Equal(t, 1, dialled(nil), "there was no answer")
		assert.Equal(t, 1, dialled(forFree))
		assert.Equal(t, 0, dialled(forFree))
		assert.Equal(t, 1, dialled(forMoney), "as soon as it asks for money")
		assert.Equal(t, 2, dialled(forFree), "one for the next call")
		assert.Equal(t, 2, dialled(nil))

		var answered []func(*Answer)
		before := len(p.theirs)
		for range 3 {
			answered = append(answered, s.asking("a", 0))
		}
		synctest.Wait()
		assert.Len(t, p.theirs, before+4, "one for each, and one for the next call")
		for _, f := range answered {
			f(forMoney)
		}
		synctest.Wait()
		assert.Len(t, p.theirs, before+4)
		assert.Zero(t, s.sellers["a"].questions)
	})
}

// A payment waits for the spare that is being dialled. If that fails it was not sent.
func TestASpareIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count, let, failed := 0, make(chan error), errors.New("nobody there")
		s := newSpares(func(context.Context, string, string) (net.Conn, error) {
			count++
			if err := <-let; err != nil {
				return nil, err
			}
			ours, _ := net.Pipe()
			return ours, nil
		})
		defer s.close()
		for _, want := range []error{nil, failed} {
			s.expect("a", 1)
			go func() {
				synctest.Wait() // until it is awaited: who comes after it failed finds none
				let <- want
			}()
			conn, err := s.take("a")
			assert.Equal(t, want, err)
			assert.Equal(t, want == nil, conn != nil)
			if conn != nil {
				_ = conn.Close()
			}
		}
		assert.Equal(t, 2, count)
	})
}

// Closing ends dials that are under way.
func TestCloseEndsDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpares(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		s.expect("a", 1)
		var err error
		done := make(chan struct{})
		go func() { defer close(done); _, err = s.take("a") }()
		synctest.Wait()
		s.close()
		<-done
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// What a seller says, or does, on a connection before it was asked anything on it.
func TestASpareThatIsNone(t *testing.T) {
	for name, do := range map[string]func(raw net.Conn, c *tls.Conn){
		"it speaks": func(_ net.Conn, c *tls.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		},
		"it ends":        func(_ net.Conn, c *tls.Conn) { _ = c.Close() },
		"it half ends":   func(_ net.Conn, c *tls.Conn) { _ = c.CloseWrite() },
		"it breaks off":  func(raw net.Conn, _ *tls.Conn) { _ = raw.Close() },
		"it resets":      func(raw net.Conn, _ *tls.Conn) { reset(raw) },
		"it speaks anew": func(raw net.Conn, _ *tls.Conn) { _, _ = raw.Write([]byte("HTTP/1.1 400")) },
	} {
		t.Run(name, func(t *testing.T) {
			authority, roots := tlsServer(t)
			var accepted atomic.Int32
			s := serveRaw(t, func(s *rawServer, raw net.Conn, _ *bufio.Reader) {
				c := tls.Server(raw, &tls.Config{Certificates: authority.TLS.Certificates})
				if accepted.Add(1) == 1 {
					if assert.NoError(t, c.Handshake()) {
						do(raw, c)
						_, _ = raw.Read(make([]byte, 1))
					}
					return
				}
				if s.next(bufio.NewReader(c)) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npaid")
				}
			})
			f := &fakeNet{answers: [][]string{{"8.8.8.8"}}, to: strings.TrimPrefix(s.url, "http://")}
			h := closed(t, New(Options{Resolver: f, RootCAs: roots, dial: f.dial}))
			h.http.spares.life = time.Hour
			h.http.spares.expect("example.com:443", 1)
			one := h.http.spares.list()[0]
			<-one.over // it was noticed
			assert.False(t, one.isQuiet)
			a, err := h.Present(t.Context(), Request{URL: "https://example.com/"}, signed)
			require.NoError(t, err)
			assert.Equal(t, "paid", string(a.Content))
			assert.EqualValues(t, 1, s.paid.Load())
			assert.EqualValues(t, 1, s.requests.Load())
		})
	}
}

// connected are both ends of a connection over TCP.
func connected(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ours, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	theirs, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

// unnoticed is a spare whose reading ended just before what happened to it.
func unnoticed(conn net.Conn) *spare {
	one := &spare{conn: conn, dialled: make(chan struct{}), over: make(chan struct{}), isQuiet: true}
	close(one.dialled)
	close(one.over)
	return one
}

// arrived waits until something is to be read from a connection, or it ended.
func arrived(t *testing.T, conn net.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting, err := unread(conn)
		return waiting || err != nil
	}, 30*time.Second, time.Millisecond)
}

// Nor is a spare taken whose reading had ended already when it came.
func TestASpareThatIsNoneAtTheLastMoment(t *testing.T) {
	for name, do := range map[string]func(net.Conn){
		"it speaks": func(c net.Conn) { _, _ = c.Write([]byte("x")) },
		"it ends":   func(c net.Conn) { _ = c.Close() },
		"it resets": reset,
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := connected(t)
			assert.True(t, unnoticed(ours).isFresh())
			do(theirs)
			arrived(t, ours)
			assert.False(t, unnoticed(ours).isFresh())
		})
	}
}

// What TLS itself says after its handshake takes nothing from a connection, and is kept for the next. What
// the seller says does.
func TestASpareOverTLS(t *testing.T) {
	server, roots := tlsServer(t)
	for name, speaks := range map[string]bool{"tickets": false, "words": true} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := connected(t)
			done := make(chan error, 1)
			encrypted := tls.Server(theirs, &tls.Config{Certificates: server.TLS.Certificates,
				ClientAuth: tls.RequestClientCert}) // or Go sends its tickets before the handshake is over
			go func() {
				err := encrypted.Handshake()
				if err == nil && speaks {
					_, err = encrypted.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
				}
				done <- err
			}()
			sessions := tls.NewLRUClientSessionCache(1)
			conn := tls.Client(ours, &tls.Config{RootCAs: roots, ServerName: "example.com",
				ClientSessionCache: sessions})
			require.NoError(t, conn.Handshake())
			require.NoError(t, <-done)
			arrived(t, ours)
			assert.Equal(t, !speaks, unnoticed(conn).isFresh())
			_, known := sessions.Get("example.com")
			assert.True(t, known)
			if !speaks {
				go func() { _, err := encrypted.Write([]byte("x")); done <- err }()
				_, err := conn.Read(make([]byte, 1))
				assert.NoError(t, err)
				assert.NoError(t, <-done)
			}
		})
	}
}

// security.md C10: what is dialled ahead is dialled under the same rules.
func TestSparesAreDialledByTheRules(t *testing.T) {
	s := serveRaw(t, func(*rawServer, net.Conn, *bufio.Reader) { t.Error("reached") })
	h := newHTTP(Options{})
	defer h.close()
	address := strings.TrimPrefix(s.url, "http://")
	dial, awaited := h.spares.dial, make(chan struct{})
	h.spares.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		<-awaited // who comes after it failed finds none
		return dial(ctx, network, address)
	}
	h.spares.expect(address, 1)
	go func() {
		defer close(awaited)
		assert.Eventually(t, func() bool {
			h.spares.mu.Lock()
			defer h.spares.mu.Unlock()
			return h.spares.count == 0
		}, time.Minute, time.Millisecond)
	}()
	conn, err := h.spares.take(address)
	assert.Nil(t, conn)
	var stopped *blockedError
	assert.ErrorAs(t, err, &stopped)
}
