package sameuser

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever watches as the same user for the process that unlock starts gets neither the passphrase
// nor a way into it: it cannot be looked into from its first moment on, and the passphrase goes to
// it over a socket that only it has.
func TestUnlockShowsNothing(t *testing.T) {
	h := newHousehold(t, "")
	seen := 0
	for range 10 {
		watched := h.watching("--foreground")
		out, err := h.command(h.wallet, "unlock", "--passphrase-file", h.secret).CombinedOutput()
		saw := watched()
		require.NoError(t, err, "%s", out)
		if saw != "" {
			seen++
			require.Equal(t, "a process\n", saw)
		}
		out, err = h.command(h.wallet, "lock").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.Positive(t, seen, "the watcher saw none of the processes at all")
}
