//go:build linux || darwin

package socket

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// listening is a socket of a home, and that home.
func listening(t *testing.T) (l net.Listener, path, home string) {
	t.Helper()
	home = must.Get(os.MkdirTemp("", "socket-"))(t) // a test's own is too long for a socket
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	path = filepath.Join(home, "s")
	l = must.Get(Listen(t.Context(), path, 0o600, home))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l, path, home
}

// heard is whom a listener takes a caller for, and what it says after what it has shown.
func heard(t *testing.T, l net.Listener, client net.Conn, says string) (User, string) {
	t.Helper()
	server := must.Get(l.Accept())(t)
	defer func() { require.NoError(t, server.Close()) }()
	require.ErrorIs(t, must.Err(Peer(server)), ErrNotYet)
	must.Get(io.WriteString(client, says))(t)
	require.NoError(t, client.Close())
	text := must.Get(io.ReadAll(server))(t)
	return must.Get(Peer(server))(t), string(text)
}

// A process of the listener's user is taken for one if it shows the secret of the home.
func TestPeer_OwnUser(t *testing.T) {
	l, path, home := listening(t)
	self := must.Get(Self())(t)
	file := filepath.Join(home, secretFile)
	require.Equal(t, os.FileMode(0o600), must.Get(os.Stat(file))(t).Mode())

	user, text := heard(t, l, must.Get(Dial(t.Context(), path, home))(t), "hello")
	require.Equal(t, self, user)
	require.Equal(t, "hello", text)

	elsewhere := must.Get(Dial(t.Context(), path, t.TempDir()))(t) // and so it can read no secret
	user, text = heard(t, l, elsewhere, "hello")
	require.Equal(t, Unproven, user)
	require.Equal(t, "hello", text)

	secret := string(must.Get(os.ReadFile(file))(t))
	wrong := strings.Map(func(r rune) rune { return r ^ 1 }, secret)
	for _, shown := range []string{wrong, wrong[:25] + secret[25:], secret[:25] + wrong[25:],
		strings.Repeat("\x00", secretSize)} {
		user, _ = heard(t, l, must.Get(net.Dial("unix", path))(t), shown)
		require.Equal(t, Unproven, user, "%q", shown)
	}

	before := must.Get(Dial(t.Context(), path, home))(t)
	require.NoError(t, NewSecret(home))
	user, _ = heard(t, l, before, "")
	require.Equal(t, Unproven, user, "it showed one that was replaced")
	user, _ = heard(t, l, must.Get(Dial(t.Context(), path, home))(t), "")
	require.Equal(t, self, user)
}

// What other programs than its user's own say, a listener for those does not hear.
func TestListenOwn(t *testing.T) {
	home := must.Get(os.MkdirTemp("", "socket-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	path := filepath.Join(home, "s")
	l := must.Get(ListenOwn(t.Context(), path, home))(t)
	defer l.Close()
	for of, may := range map[string]bool{home: true, t.TempDir(): false} {
		client := must.Get(DialOwn(t.Context(), path, of))(t)
		must.Get(io.WriteString(client, "hello"))(t)
		server := must.Get(l.Accept())(t)
		text := make([]byte, 5)
		n, err := server.Read(text)
		if may {
			require.NoError(t, err)
			require.Equal(t, "hello", string(text[:n]))
		} else {
			require.ErrorContains(t, err, "cannot read the wallet's home")
			require.Zero(t, n)
		}
		require.NoError(t, server.Close())
		require.NoError(t, client.Close())
	}
	require.ErrorContains(t, refuseOther(self()+"1", self()), "runs as user")
}

// A caller that shows a part of a secret, or nothing, is nobody.
func TestPeer_Silent(t *testing.T) {
	l, path, home := listening(t)
	secret := string(must.Get(os.ReadFile(filepath.Join(home, secretFile)))(t))
	for _, shown := range []string{"", secret[:25]} {
		client := must.Get(net.Dial("unix", path))(t)
		must.Get(io.WriteString(client, shown))(t)
		server := must.Get(l.Accept())(t)
		require.NoError(t, server.SetReadDeadline(time.Now()))
		for range 2 {
			require.ErrorIs(t, must.Err(server.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
			require.ErrorIs(t, must.Err(Peer(server)), ErrNotYet)
			require.NoError(t, server.SetReadDeadline(time.Time{}))
		}
		require.NoError(t, server.Close())
		require.NoError(t, client.Close())
	}
}

// The next listener of a home goes by the same secret, unless the file is none.
func TestListen_Again(t *testing.T) {
	l, path, home := listening(t)
	file := filepath.Join(home, secretFile)
	secret := must.Get(os.ReadFile(file))(t)
	for _, found := range []string{string(secret), "", "short", string(secret) + "\n"} {
		require.NoError(t, l.Close())
		require.NoError(t, os.WriteFile(file, []byte(found), 0o600))
		l = must.Get(Listen(t.Context(), path, 0o600, home))(t)
		now := must.Get(os.ReadFile(file))(t)
		require.Len(t, now, secretSize)
		require.Equal(t, found == string(secret), string(now) == string(secret), "%q", found)
	}
	client := must.Get(Dial(t.Context(), path, home))(t)
	defer client.Close()
	server := must.Get(l.Accept())(t)
	defer server.Close()
	require.NoError(t, os.Remove(file))
	require.ErrorIs(t, must.Err(server.Read(make([]byte, 1))), os.ErrNotExist)
	require.ErrorIs(t, must.Err(Peer(server)), ErrNotYet)
}
