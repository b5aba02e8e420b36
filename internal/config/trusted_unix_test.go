//go:build unix

package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// A mounted secret as Kubernetes lays it out: links in a sticky directory that everybody may write to.
func TestReadTrustedFollowsItsOwnLinks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..2026"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..2026", "password"), []byte("{}"), 0o644))
	require.NoError(t, os.Symlink("..2026", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/password", filepath.Join(dir, "password")))
	require.Equal(t, "{}", string(must.Get(ReadTrusted(filepath.Join(dir, "password"), 100))(t)))
	require.ErrorContains(t, must.Err(ReadTrusted(filepath.Join(dir, "password"), 1)), "longer than")
}

func TestReadTrustedRefuses(t *testing.T) {
	fresh := func() (dir, path string) {
		dir = t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o755))
		path = filepath.Join(dir, "password")
		require.NoError(t, os.WriteFile(path, []byte("{}"), 0o644))
		return dir, path
	}
	dir, path := fresh()
	must.Get(ReadTrusted(path, 100))(t)
	for _, mode := range []os.FileMode{0o777, 0o775} {
		require.NoError(t, os.Chmod(dir, mode))
		require.ErrorContains(t, must.Err(ReadTrusted(path, 100)), "so can what is in it", "%o", mode)
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(path, 0o666))
	require.ErrorContains(t, must.Err(ReadTrusted(path, 100)), "can be written by others")

	_, path = fresh()
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(path, link))
	must.Get(ReadTrusted(link, 100))(t)
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o777))
	require.ErrorContains(t, must.Err(ReadTrusted(link, 100)), "so can what is in it", "where the link leads")

	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	require.ErrorContains(t, must.Err(ReadTrusted(loop, 100)), "link to a link")
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.ErrorContains(t, must.Err(ReadTrusted(fifo, 100)), "not a regular file")
	require.ErrorIs(t, must.Err(ReadTrusted(filepath.Join(dir, "none"), 100)), os.ErrNotExist)

	if os.Geteuid() != 0 {
		return // only root gives files away
	}
	_, path = fresh()
	require.NoError(t, os.Symlink(path, link+"2"))
	require.NoError(t, os.Lchown(link+"2", 65534, 65534))
	require.ErrorContains(t, must.Err(ReadTrusted(link+"2", 100)), "belongs to user 65534")
	sticky, path := fresh()
	require.NoError(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	require.NoError(t, os.Chown(sticky, 65534, 65534))
	_, err := ReadTrusted(path, 100)
	require.ErrorContains(t, err, "belongs to user 65534", "whose directory it is may exchange all in it")
}
