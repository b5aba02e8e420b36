//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An administrator sees what will be done before it is, and no is the usual answer.
func TestServiceInstallAsks(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "image")
	for _, c := range []struct {
		typed string
		code  int
	}{{"\n", 1}, {"n\n", 1}, {"y\n", 0}} {
		sits := sit(t, nil, nil, "service", "install", "--root", root)
		sits.sees("Do it? [y/N]", 1)
		_, err := os.Stat(root)
		require.ErrorIs(t, err, os.ErrNotExist, "nothing is done before the answer")
		sits.types(c.typed)
		seen := sits.ends(c.code)
		require.Contains(t, seen, "write "+root)
		require.NotContains(t, seen, "run systemctl", "below another root nothing is run")
	}
	require.DirExists(t, root)
}
