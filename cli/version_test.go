package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// --version says what the command version does.
func TestVersionOption(t *testing.T) {
	for _, option := range []string{"--version", "-v"} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = out.Close() })
		p := &Program{Version: "1.2.3", Stdin: os.Stdin, Stdout: out, Stderr: os.Stderr}
		require.Equal(t, exitDone, p.Run(t.Context(), []string{option}))
		said, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		require.Equal(t, p.build().String()+"\n", string(said))
	}
}
