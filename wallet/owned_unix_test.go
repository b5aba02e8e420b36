//go:build unix

package wallet

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	data, _ := golden(t)
	dir := putKeystore(t, data)
	require.NoError(t, os.Chown(filepath.Join(dir, keystoreName), 4242, -1))
	_, err := Open(dir)
	e := requireCode(t, err, codePermissions)
	require.Contains(t, e.Error(), "belongs to user 4242")
	require.Contains(t, e.Hint(), "chown 0 ")

	dir = putKeystore(t, data)
	require.NoError(t, os.Chown(dir, 4242, -1))
	_, err = Open(dir)
	requireCode(t, err, codePermissions)
}

func TestQuote(t *testing.T) {
	require.Equal(t, "/home/a/.config/x402-wallet", shellQuote("/home/a/.config/x402-wallet"))
	for _, path := range []string{"/a b", "/it's", "/$HOME", "", "/`id`", "/ü\n"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shellQuote(path)).Output()
		require.NoError(t, err)
		require.Equal(t, path, string(out))
	}
}
