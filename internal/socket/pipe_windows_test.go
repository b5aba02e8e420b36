package socket

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Microsoft/go-winio"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/windows"

	"x402-wallet/internal/must"
)

// ownPipe is the name of a test's pipe.
func ownPipe(t *testing.T) string {
	return fmt.Sprintf(`\\.\pipe\x402-wallet-%s-%d`, t.Name(), os.Getpid())
}

// pair is a connection over a pipe that this process made, both ends.
func pair(t *testing.T, path string) (client, server net.Conn) {
	l := must.Get(Listen(t.Context(), path, 0o666, ""))(t)
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			accepted <- c
		}
		close(accepted)
	}()
	client = must.Get(Dial(t.Context(), path, ""))(t)
	server, ok := <-accepted
	require.True(t, ok)
	t.Cleanup(func() { _ = client.Close(); _ = server.Close(); _ = l.Close() })
	return client, server
}

// Both ends of a pipe know whose process is at the other; the server at the latest once it has read
// something.
func TestWhoIsAtTheOtherEnd(t *testing.T) {
	path := ownPipe(t)
	require.ErrorIs(t, must.Err(Dial(t.Context(), path, "")), ErrNone)
	client, server := pair(t, path)
	self := must.Get(Self())(t)
	require.Equal(t, self, must.Get(Peer(client))(t))

	if early, err := Peer(server); err != nil {
		require.ErrorIs(t, err, ErrNotYet)
	} else {
		require.Equal(t, self, early)
	}
	must.Get(client.Write([]byte("x")))(t)
	must.Get(server.Read(make([]byte, 1)))(t)
	require.Equal(t, self, must.Get(Peer(server))(t))
	t.Log("user", self, "login", self.Login())
	require.NotEmpty(t, self.Login())
}

// A name is one listener's: nobody else gets a client of it.
func TestAPipeIsMadeOnce(t *testing.T) {
	path := ownPipe(t)
	pair(t, path)
	require.ErrorContains(t, must.Err(Listen(t.Context(), path, 0o600, "")), "somebody's already")
}

// However a path is written, it is one pipe.
func TestOnePathOnePipe(t *testing.T) {
	whole := must.Get(filepath.Abs("s"))(t)
	require.Equal(t, pipeOf(whole), pipeOf("s"))
	require.Equal(t, pipeOf(whole), pipeOf(`.\S`))
	require.NotEqual(t, pipeOf(whole), pipeOf("s2"))
}

// A deadline ends what waits.
func TestADeadlineOfAPipe(t *testing.T) {
	client, _ := pair(t, ownPipe(t))
	require.NoError(t, client.SetReadDeadline(time.Now()))
	require.ErrorIs(t, must.Err(client.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
}

// A client says nothing to a pipe that is somebody else's. It takes a user who may give a pipe away.
func TestAPipeOfSomebodyElse(t *testing.T) {
	path := ownPipe(t)
	l, err := winio.ListenPipe(pipeOf(path), &winio.PipeConfig{
		SecurityDescriptor: descriptor("WD", 0o666)})
	if err != nil {
		require.ErrorIs(t, err, windows.ERROR_INVALID_OWNER)
		t.Log("NOT TESTED HERE: this user may not give a pipe away")
		return
	}
	defer func() { require.NoError(t, l.Close()) }()
	go func() {
		if c, err := l.Accept(); err == nil {
			defer func() { _ = c.Close() }()
			_, _ = c.Read(make([]byte, 1))
		}
	}()
	require.ErrorContains(t, must.Err(Dial(t.Context(), path, "")), "belongs to S-1-1-0")
}

// The descriptor is one that Windows reads as it is meant.
func TestWindowsReadsTheDescriptor(t *testing.T) {
	self := must.Get(Self())(t)
	sd := must.Get(windows.SecurityDescriptorFromString(descriptor(self, 0o666)))(t)
	owner, _, err := sd.Owner()
	require.NoError(t, err)
	require.Equal(t, string(self), owner.String())
	require.Contains(t, sd.String(), "(D;;GA;;;NU)")
}
