//go:build unix

package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

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
	data, err := ReadTrusted(filepath.Join(dir, "password"), 100)
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))
	_, err = ReadTrusted(filepath.Join(dir, "password"), 1)
	require.ErrorContains(t, err, "longer than")
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
	_, err := ReadTrusted(path, 100)
	require.NoError(t, err)
	for _, mode := range []os.FileMode{0o777, 0o775} {
		require.NoError(t, os.Chmod(dir, mode))
		_, err = ReadTrusted(path, 100)
		require.ErrorContains(t, err, "so can what is in it", "%o", mode)
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(path, 0o666))
	_, err = ReadTrusted(path, 100)
	require.ErrorContains(t, err, "can be written by others")

	_, path = fresh()
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(path, link))
	_, err = ReadTrusted(link, 100)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o777))
	_, err = ReadTrusted(link, 100)
	require.ErrorContains(t, err, "so can what is in it", "where the link leads")

	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	_, err = ReadTrusted(loop, 100)
	require.ErrorContains(t, err, "link to a link")
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err = ReadTrusted(fifo, 100)
	require.ErrorContains(t, err, "not a regular file")
	_, err = ReadTrusted(filepath.Join(dir, "none"), 100)
	require.ErrorIs(t, err, os.ErrNotExist)

	if os.Geteuid() != 0 {
		return // only root gives files away
	}
	_, path = fresh()
	require.NoError(t, os.Symlink(path, link+"2"))
	require.NoError(t, os.Lchown(link+"2", 65534, 65534))
	_, err = ReadTrusted(link+"2", 100)
	require.ErrorContains(t, err, "belongs to user 65534")
	sticky, path := fresh()
	require.NoError(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	require.NoError(t, os.Chown(sticky, 65534, 65534))
	_, err = ReadTrusted(path, 100)
	require.ErrorContains(t, err, "belongs to user 65534", "whose directory it is may exchange all in it")
}
