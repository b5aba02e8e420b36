//go:build unix

package ownfile

import (
	"os/exec"
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

func TestQuote(t *testing.T) {
	require.Equal(t, "/home/a/.config/x402-wallet", shellQuote("/home/a/.config/x402-wallet"))
	for _, path := range []string{"/a b", "/it's", "/$HOME", "", "/`id`", "/ü\n"} {
		out := must.Get(exec.Command("sh", "-c", "printf %s "+shellQuote(path)).Output())(t)
		require.Equal(t, path, string(out))
	}
}
