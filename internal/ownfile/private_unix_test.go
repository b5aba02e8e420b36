//go:build unix

package ownfile

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuote(t *testing.T) {
	require.Equal(t, "/home/a/.config/x402-wallet", shellQuote("/home/a/.config/x402-wallet"))
	for _, path := range []string{"/a b", "/it's", "/$HOME", "", "/`id`", "/ü\n"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shellQuote(path)).Output()
		require.NoError(t, err)
		require.Equal(t, path, string(out))
	}
}
