package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A person sees which key a program was released with, as ssh-keygen -l shows it; what is no key is none.
func TestVersionNamesTheReleaseKey(t *testing.T) {
	const key = "AAAAC3NzaC1lZDI1NTE5AAAAIJDBM2Rz0tGfhbMTEM4Sdg6KZidcE9R8oINt2xOie6OG"
	b := (&Program{Version: "1.2.3", ReleaseKey: key}).build()
	require.Equal(t, "SHA256:L0UORhdWXXE1/7ZJ1dpCbn97eaO3ukUGtgRgsHnwoT4", b.ReleaseKey)
	require.Contains(t, b.String(), "x402-wallet 1.2.3 (commit ")
	require.Contains(t, b.String(), "\nrelease key "+b.ReleaseKey)
	for _, none := range []string{"", "x", key[1:]} {
		b := (&Program{Version: "1.2.3", ReleaseKey: none}).build()
		require.Empty(t, b.ReleaseKey)
		require.NotContains(t, b.String(), "release key")
	}
}

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
