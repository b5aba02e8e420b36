package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func TestVersionOption(t *testing.T) {
	for _, option := range []string{"--version", "-v"} {
		out := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
		t.Cleanup(func() { _ = out.Close() })
		p := &Program{Version: "1.2.3", Stdin: os.Stdin, Stdout: out, Stderr: os.Stderr}
		require.Equal(t, exitDone, p.Run(t.Context(), []string{option}))
		said := must.Get(os.ReadFile(out.Name()))(t)
		require.Equal(t, p.build().String()+"\n", string(said))
	}
}
