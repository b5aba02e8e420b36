//go:build linux || darwin

package relay

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"x402-wallet/internal/socket"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func pair(t *testing.T) (from, to net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "socket-") // a test's own is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := must.Get(socket.Listen(t.Context(), filepath.Join(dir, "s"), 0o600))(t)
	defer l.Close()
	from = must.Get(net.Dial("unix", l.Addr().String()))(t)
	to = must.Get(l.Accept())(t)
	t.Cleanup(func() { _ = from.Close(); _ = to.Close() })
	return from, to
}

func open(t *testing.T) int {
	t.Helper()
	list := must.Get(os.ReadDir("/dev/fd"))(t)
	return len(list)
}

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
