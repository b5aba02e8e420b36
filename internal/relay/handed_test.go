//go:build linux || darwin

package relay

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/socket"
	"x402-wallet/x402"
)

// commanded is a service that gives what came to it, once.
func commanded(t *testing.T) (path string, came chan *Session) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "relay-"))(t) // a test's own is too long for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := must.Get(Listen(t.Context(), dir+"/s", 0o600, ""))(t)
	came = make(chan *Session, 1)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		defer close(came)
		if conn, err := l.Accept(); err == nil {
			if s, err := Open(conn); err == nil {
				came <- s
			}
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-accepted })
	return l.Addr().String(), came
}

type handing struct {
	exit  int
	err   error
	begun bool
	over  chan struct{}
}

func hand(ctx context.Context, path string, c Command, files ...*os.File) *handing {
	h := &handing{over: make(chan struct{})}
	go func() {
		defer close(h.over)
		h.exit, h.err = HandOver(ctx, path, "", c, files, func() { h.begun = true })
	}()
	return h
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func TestACommandIsHandedOver(t *testing.T) {
	path, came := commanded(t)
	r, w := pipe(t)
	long := strings.Repeat("x", maxFrame/2) // more than one read takes
	h := hand(t.Context(), path, Command{Args: []string{"approve", long}, NoColor: true}, r, w, w, w)
	s := <-came
	require.Equal(t, must.Get(socket.Self())(t), s.User)
	require.Equal(t, Command{Args: []string{"approve", long}, NoColor: true}, s.Handed.Command)
	require.Len(t, s.Handed.Files, 4)
	gone := must.Get(s.Take())(t)
	must.Get(s.Handed.Files[Streams].WriteString("to the terminal"))(t)
	text := make([]byte, len("to the terminal"))
	must.Get(io.ReadFull(r, text))(t)
	require.Equal(t, "to the terminal", string(text))
	select {
	case <-gone:
		require.Fail(t, "nobody has gone")
	default:
	}
	require.NoError(t, s.Ended(4, nil))
	<-h.over
	require.NoError(t, h.err)
	require.Equal(t, 4, h.exit)
	require.True(t, h.begun)
	<-gone
}

// Who presses Ctrl-C hears how the command ended all the same; who dies, the service hears of.
func TestACommandIsTakenBack(t *testing.T) {
	path, came := commanded(t)
	_, w := pipe(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	h := hand(ctx, path, Command{Args: []string{"unlock"}}, w, w, w)
	s := <-came
	gone := must.Get(s.Take())(t)
	stop()
	<-gone
	require.NoError(t, s.Ended(1, x402.Errorf(x402.Timeout, "it took too long").WithHint("again")))
	<-h.over
	require.Equal(t, 1, h.exit)
	require.True(t, x402.HasCode(h.err, x402.Timeout), "%v", h.err)

	path, came = commanded(t)
	conn := must.Get(net.Dial("unix", path))(t)
	body := must.Get(json.Marshal(Command{Args: []string{"unlock"}}))(t)
	require.NoError(t, sendFiles(conn, frame(frameCommand, body), w, w, w))
	s = <-came
	gone = must.Get(s.Take())(t)
	require.NoError(t, conn.Close())
	<-gone
	_ = s.Ended(0, nil) // nobody hears it
}

func TestACommandIsRefused(t *testing.T) {
	path, came := commanded(t)
	_, w := pipe(t)
	h := hand(t.Context(), path, Command{Args: []string{"unlock"}}, w, w, w)
	require.NoError(t, (<-came).Refuse(x402.Errorf(x402.PolicyDenied, "no owner")))
	<-h.over
	require.True(t, x402.HasCode(h.err, x402.PolicyDenied), "%v", h.err)
	require.False(t, h.begun)

	_, err := HandOver(t.Context(), path+"x", "", Command{}, []*os.File{w, w, w}, nil)
	require.ErrorIs(t, err, ErrNone)

	path, came = commanded(t)
	h = hand(t.Context(), path, Command{Args: []string{"unlock"}}, w, w, w)
	s := <-came
	must.Get(s.Take())(t)
	require.NoError(t, s.conn.Close()) // the service dies
	s.Handed.Close()
	<-h.over
	require.True(t, x402.HasCode(h.err, x402.ServerUnavailable), "%v", h.err)
}

// Nothing that came is left open, whatever came with it.
func TestNoFilesAreLeftOpen(t *testing.T) {
	_, w := pipe(t)
	for name, c := range map[string]struct {
		frame []byte
		files []*os.File
		is    bool // a session, which is refused then
	}{
		"a host's":      {frame(frameHello, []byte(`{}`)), []*os.File{w, w}, true},
		"a command":     {frame(frameCommand, []byte(`{"args":["lock"]}`)), []*os.File{w, w, w, w}, true},
		"too many":      {frame(frameCommand, []byte(`{"args":["lock"]}`)), []*os.File{w, w, w, w, w}, false},
		"too few":       {frame(frameCommand, []byte(`{"args":["lock"]}`)), []*os.File{w, w}, false},
		"none":          {frame(frameCommand, []byte(`{"args":["lock"]}`)), nil, false},
		"no JSON":       {frame(frameCommand, []byte(`{"args":`)), []*os.File{w, w, w}, false},
		"another frame": {frame(frameData, []byte(`x`)), []*os.File{w, w, w}, false},
		"half a head":   {[]byte("c\x00"), []*os.File{w, w, w}, false},
		"half a body":   {frame(frameCommand, []byte(`{}`))[:6], []*os.File{w, w, w}, false},
		"too long":      {[]byte("c\xff\xff\xff\xff"), []*os.File{w, w, w}, false},
	} {
		path, came := commanded(t)
		before := must.Get(os.ReadDir("/dev/fd"))(t)
		conn := must.Get(net.Dial("unix", path))(t)
		require.NoError(t, sendFiles(conn, c.frame, c.files...))
		require.NoError(t, conn.(*net.UnixConn).CloseWrite())
		s, is := <-came
		require.Equal(t, c.is, is, name)
		if is {
			require.NoError(t, s.Refuse(x402.Errorf(x402.PolicyDenied, "no")), name)
		}
		require.NoError(t, conn.Close())
		require.Len(t, must.Get(os.ReadDir("/dev/fd"))(t), len(before), name)
	}
}

func pair(t *testing.T) (from, to net.Conn) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "socket-"))(t) // a test's own is too long for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := must.Get(socket.Listen(t.Context(), filepath.Join(dir, "s"), 0o600, ""))(t)
	defer l.Close()
	from = must.Get(net.Dial("unix", l.Addr().String()))(t)
	to = must.Get(l.Accept())(t)
	t.Cleanup(func() { _ = from.Close(); _ = to.Close() })
	return from, to
}

func open(t *testing.T) int { return len(must.Get(os.ReadDir("/dev/fd"))(t)) }

func files(t *testing.T, n int) (list []*os.File) {
	t.Helper()
	for range n {
		f := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
		t.Cleanup(func() { _ = f.Close() })
		list = append(list, f)
	}
	return list
}

func TestFilesAreHandedOver(t *testing.T) {
	from, to := pair(t)
	sent := files(t, maxFiles)
	require.NoError(t, sendFiles(from, []byte("words"), sent...))
	text := make([]byte, 2)
	n, got, err := readFiles(to, text)
	require.NoError(t, err)
	require.Equal(t, "wo", string(text[:n]))
	require.Len(t, got, maxFiles)
	for i, f := range got {
		is := must.Get(f.Stat())(t)
		was := must.Get(sent[i].Stat())(t)
		require.True(t, os.SameFile(was, is), i)
		require.NoError(t, f.Close())
	}
	n, got, err = readFiles(to, make([]byte, 9))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Empty(t, got)
}

// More files than are taken, and files that no readFiles meets, are closed.
func TestFilesThatNobodyTakes(t *testing.T) {
	from, to := pair(t)
	many := files(t, 3*maxFiles)
	before := open(t)
	for _, n := range []int{maxFiles + 1, 3 * maxFiles} {
		require.NoError(t, sendFiles(from, []byte("w"), many[:n]...))
		_, got, err := readFiles(to, make([]byte, 1))
		require.Error(t, err)
		require.Empty(t, got)
		require.Equal(t, before, open(t), n)
	}
	require.NoError(t, sendFiles(from, []byte("w"), many...))
	must.Get(to.Read(make([]byte, 1)))(t)
	require.Equal(t, before, open(t))
}
