package app

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// The key is made once, however many paywalls start at once, and is its owner's alone.
func TestTheStatementKeyIsMadeOnce(t *testing.T) {
	home := t.TempDir()
	a := at(t, t.TempDir(), home)
	keys := make([]ed25519.PrivateKey, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() { keys[i], _ = a.statementKey() })
	}
	all.Wait()
	for _, key := range keys {
		require.Len(t, key, ed25519.PrivateKeySize)
		require.Equal(t, keys[0], key)
	}
	path := filepath.Join(home, statementKeyFile)
	info := must.Get(os.Stat(path))(t)
	if runtime.GOOS != "windows" {
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.Len(t, must.Get(os.ReadDir(home))(t), 1, "nothing else is left")
}

// A key that others can read, or that is none, is refused and not replaced.
func TestAStatementKeyThatIsNone(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"others read it": func(path string) error { return os.Chmod(path, 0o644) },
		"no key":         func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"no PKCS #8": func(path string) error {
			return os.WriteFile(path, []byte(
				"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && name == "others read it" {
				t.Skip("there are no such bits")
			}
			home := t.TempDir()
			a := at(t, t.TempDir(), home)
			must.Get(a.statementKey())(t)
			path := filepath.Join(home, statementKeyFile)
			require.NoError(t, spoil(path))
			before := must.Get(os.ReadFile(path))(t)
			_, err := a.statementKey()
			requireCode(t, err, x402.SetupFailed)
			require.Contains(t, x402.AsError(err).Hint, path)
			require.Equal(t, before, must.Get(os.ReadFile(path))(t))
		})
	}
}
