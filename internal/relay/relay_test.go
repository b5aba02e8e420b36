//go:build linux || darwin || windows

package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/internal/socket"
	"x402-wallet/x402"
)

func TestMain(m *testing.M) {
	// it waits for all pipes of a Windows process, and never ends
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Microsoft/go-winio.ioCompletionProcessor"))
}

// listening is a service; each session that it lets in comes out of sessions.
func listening(t *testing.T, refuse error) (path string, sessions chan *Session) {
	dir := must.Get(os.MkdirTemp("", "relay-"))(t) // a test's own is too long for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	sessions, _ = listenAt(t, path, refuse)
	return path, sessions
}

// listenAt is listening at a path, until stop.
func listenAt(t *testing.T, path string, refuse error) (sessions chan *Session, stop func()) {
	l := must.Get(Listen(t.Context(), path, 0o600, ""))(t)
	sessions = make(chan *Session, 10)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s, err := Open(conn)
			switch {
			case err != nil:
			case refuse != nil:
				_ = s.Refuse(refuse)
			case s.Admit() == nil:
				sessions <- s
			}
		}
	})
	stop = func() { _ = l.Close(); accepting.Wait() }
	t.Cleanup(stop)
	return sessions, stop
}

// host is the streams of a host, and the relay behind them.
type host struct {
	says  *io.PipeWriter
	hears *io.PipeReader
	ended chan error
}

func relayed(t *testing.T, path string, hello Hello) host {
	in, says := io.Pipe()
	hears, out := io.Pipe()
	h := host{says: says, hears: hears, ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		h.ended <- Pass(ctx, path, "", hello, in, out)
		_ = out.Close()
	}()
	t.Cleanup(func() { _ = says.Close(); _ = hears.Close(); stop() })
	return h
}

// noted is what OnPassed said, once.
func noted(s *Session) chan bool {
	said := make(chan bool, 2)
	s.OnPassed(func(passed bool) { said <- passed })
	return said
}

func TestASessionIsPassedOn(t *testing.T) {
	path, sessions := listening(t, nil)
	h := relayed(t, path, Hello{Token: "x402w_token"})
	go func() {
		_, _ = io.WriteString(h.says, "asked\n")
		_, _ = io.WriteString(h.says, strings.Repeat("x", 3*maxFrame)+"\n") // in several frames
	}()
	s := <-sessions
	require.Equal(t, must.Get(socket.Self())(t), s.User)
	require.Equal(t, "x402w_token", s.Token)
	heard := make([]byte, len("asked\n")+3*maxFrame+1)
	must.Get(io.ReadFull(s, heard))(t)
	require.Equal(t, "asked\n"+strings.Repeat("x", 3*maxFrame)+"\n", string(heard))

	answer := append(bytes.Repeat([]byte("answer"), maxFrame), '\n') // more than buffers hold
	written := make(chan error, 1)
	go func() { _, err := s.Write(answer); written <- err }()
	got := make([]byte, len(answer))
	must.Get(io.ReadFull(h.hears, got))(t)
	require.NoError(t, <-written)
	require.Equal(t, answer, got)
	require.True(t, <-noted(s))

	require.NoError(t, h.says.Close()) // the host ends, and hears what is still to be said
	require.ErrorIs(t, must.Err(s.Read(heard)), io.EOF)
	must.Get(s.Write([]byte("last\n")))(t)
	last := noted(s)
	go func() { _ = s.Close() }()
	require.Equal(t, "last\n", string(must.Get(io.ReadAll(h.hears))(t)))
	require.NoError(t, <-h.ended)
	require.True(t, <-last)
}

// What the host did not read was not passed on, however long it lay in a buffer on its way.
func TestWhatAHostDidNotReadIsNotPassedOn(t *testing.T) {
	path, sessions := listening(t, nil)
	h := relayed(t, path, Hello{})
	s := <-sessions
	must.Get(s.Write([]byte("first\n")))(t)
	first := noted(s)
	got := make([]byte, len("first\n"))
	must.Get(io.ReadFull(h.hears, got))(t)
	require.True(t, <-first)

	must.Get(s.Write([]byte("second\n")))(t) // the socket takes it
	second := noted(s)
	select {
	case <-second:
		require.Fail(t, "nobody read it")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, h.hears.Close()) // the host dies
	require.False(t, <-second)
	require.NoError(t, <-h.ended)
	require.False(t, <-noted(s), "nor is what comes later, or is asked about again")
	require.NoError(t, s.Close())
}

// The end of a service is the end of the host's session: with what the service said before, and an error that
// says what to do.
func TestAServiceThatEnds(t *testing.T) {
	path, sessions := listening(t, nil)
	h := relayed(t, path, Hello{})
	s := <-sessions
	must.Get(s.Write([]byte("last\n")))(t)
	go func() { _ = s.Close() }()
	require.Equal(t, "last\n", string(must.Get(io.ReadAll(h.hears))(t)))
	err := <-h.ended
	require.True(t, x402.HasCode(err, x402.ServerUnavailable), "%v", err)
	require.Contains(t, x402.AsError(err).Hint, "start the session again")
}

// A relay that claims more than was written, or speaks no frames, ends its session and nothing else.
func TestLyingRelays(t *testing.T) {
	path, sessions := listening(t, nil)
	connected := func() (net.Conn, *Session) {
		conn := must.Get(socket.Dial(t.Context(), path, ""))(t)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, writeFrame(conn, frameHello, []byte(`{}`)))
		line := make([]byte, len("{}\n"))
		must.Get(io.ReadFull(conn, line))(t)
		return conn, <-sessions
	}
	conn, s := connected()
	require.NoError(t, writeFrame(conn, framePassed, binary.BigEndian.AppendUint64(nil, 1<<63)))
	require.NoError(t, writeFrame(conn, frameData, []byte("x")))
	must.Get(io.ReadFull(s, make([]byte, 1)))(t) // so that the frame before it was read
	must.Get(s.Write([]byte("answer\n")))(t)
	later := noted(s)
	require.NoError(t, conn.Close())
	require.False(t, <-later, "what it claimed before is not this")
	require.NoError(t, s.Close())

	conn, s = connected()
	must.Get(s.Write([]byte("first\n")))(t)
	first := noted(s)
	must.Get(s.Write([]byte("second\n")))(t)
	second := noted(s)
	require.NoError(t, writeFrame(conn, framePassed, binary.BigEndian.AppendUint64(nil, 6)))
	require.True(t, <-first)
	require.NoError(t, conn.Close())
	require.False(t, <-second)
	require.NoError(t, s.Close())

	for _, wrong := range [][]byte{{'x', 0, 0, 0, 0}, {'d', 0xff, 0, 0, 0}, {'p', 0, 0, 0, 1, 7}} {
		conn, s := connected()
		must.Get(conn.Write(wrong))(t)
		require.Error(t, must.Err(s.Read(make([]byte, 1))))
		require.NoError(t, s.Close())
	}
	for _, wrong := range []string{"GET / HTTP/1.1\r\n\r\n", "h\x00\x00\x00\x02[]", "d\x00\x00\x00\x00"} {
		conn := must.Get(socket.Dial(t.Context(), path, ""))(t)
		must.Get(io.WriteString(conn, wrong))(t)
		require.Error(t, must.Err(conn.Read(make([]byte, 1))), "%q", wrong)
		require.NoError(t, conn.Close())
	}
	require.Empty(t, sessions)
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("<&>", 1000)
	path, _ := listening(t, x402.Errorf(x402.PolicyDenied, "not you: %s", long).WithHint("%s", long))
	h := relayed(t, path, Hello{})
	err := <-h.ended
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
	require.Contains(t, err.Error(), "not you")
}

func TestNoService(t *testing.T) {
	path, sessions := listening(t, nil)
	require.ErrorIs(t, <-relayed(t, path+"x", Hello{}).ended, ErrNone)
	require.ErrorIs(t, <-relayed(t, "/"+strings.Repeat("x", 200), Hello{}).ended, ErrNone)
	_, err := Listen(t.Context(), path, 0o600, "")
	require.True(t, x402.HasCode(err, x402.SetupFailed), "%v", err)
	require.Contains(t, err.Error(), "already")

	if runtime.GOOS != "windows" { // where no file is in the way of a pipe
		file := filepath.Join(filepath.Dir(path), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, err = Listen(t.Context(), file, 0o600, "")
		require.True(t, x402.HasCode(err, x402.SetupFailed), "%v", err)
		require.NoError(t, must.Err(os.Stat(file)), "what is no socket stays")
	}

	require.Empty(t, sessions)
}
