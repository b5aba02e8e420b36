package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/ownfile"
)

func TestLoadAndWrite(t *testing.T) {
	home := filepath.Join(t.TempDir(), "a", "home")
	require.NoError(t, MakeHome(home))
	require.ErrorIs(t, must.Err(Load(home)), fs.ErrNotExist)

	path := filepath.Join(home, FileName)
	require.NoError(t, ownfile.Write(path, []byte("[budget]\nday = \"7\"\n")))
	require.NoError(t, ownfile.Write(path, []byte("[budget]\nday = \"8\"\n")))
	c := must.Get(Load(home))(t)
	assert.Equal(t, dollars(t, "8"), c.Budget.Day)
	assert.Empty(t, c.Warnings)
	entries := must.Get(os.ReadDir(home))(t)
	assert.Len(t, entries, 1, "no temp file stays behind")
	halfway := errors.New("halfway")
	require.ErrorIs(t, ownfile.Replace(path, 0o600, func(out io.Writer) error {
		_, err := io.WriteString(out, "[budget]\nday = \"9")
		return errors.Join(err, halfway)
	}), halfway)
	c = must.Get(Load(home))(t)
	assert.Equal(t, dollars(t, "8"), c.Budget.Day, "what was there")
	entries = must.Get(os.ReadDir(home))(t)
	assert.Len(t, entries, 1, "no temp file stays behind")

	require.NoError(t, os.WriteFile(path, make([]byte, MaxFile+1), 0o600))
	assert.ErrorContains(t, must.Err(Load(home)), "longer than")
}

func TestLoadChecksWhoMayWrite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no mode bits")
	}
	home := t.TempDir()
	path := filepath.Join(home, FileName)
	require.NoError(t, ownfile.Write(path, nil))
	assert.Equal(t, os.FileMode(0o600), must.Get(os.Stat(path))(t).Mode().Perm())

	for i, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			require.NoError(t, os.Chmod(path, mode))
			_, err := Load(home)
			assert.ErrorContains(t, err, "can be written by others", "%o", mode)
			assert.ErrorContains(t, err, "chmod 600")
		})
	}
	require.NoError(t, os.Chmod(path, 0o644))
	assert.Len(t, must.Get(Load(home))(t).Warnings, 1)

	for _, mode := range []os.FileMode{0o640, 0o604} {
		require.NoError(t, os.Chmod(path, mode))
		assert.ErrorContains(t, must.Err(ReadSecretFile(path)), "can be read by others")
	}
	require.NoError(t, os.Chmod(path, 0o600))
	must.Get(ReadSecretFile(path))(t)

	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(path, 65534, 65534))
		assert.ErrorContains(t, must.Err(Load(home)), "belongs to user 65534")
	}
	require.NoError(t, os.Chmod(home, 0o777)) //nolint:gosec // the fault under test
	assert.ErrorContains(t, MakeHome(home), "chmod 700")

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	assert.ErrorContains(t, must.Err(Load(home)), "not a regular file")
}
