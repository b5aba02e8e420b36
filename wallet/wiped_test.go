//go:build linux && !race

// Under the race detector, reading all of the memory takes a minute and says nothing: the detector
// keeps copies of its own. make race runs this without it.

package wallet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"

	"github.com/stretchr/testify/require"
)

// What wiping achieves. It cannot promise more in Go: see the package's comment. The runtime keeps a copy of
// the registers where it stops a goroutine in the middle of a signature, so a busy machine gets three tries.
func TestWipedFromMemory(t *testing.T) {
	dir := goldenHome(t)
	var before, after [5]int
	for range 3 {
		out, err := keytest.Command(t, "wipe", dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("copies of seed, scalar, scalar's words, passphrase, phrase: unlocked and locked: %s", out)
		before, after = counted(t, out)
		require.Positive(t, before[0]+before[1]+before[2], "it would find them")
		// Ours are gone, and of the secp256k1 key there was one.
		require.Equal(t, 1, before[1])
		require.Zero(t, after[1]+after[2])
		if after[0] <= 1 && after[3] <= 2 {
			return
		}
	}
	// Some that the libraries made may be left: crypto/ed25519's cache, and the strings that x/crypto's two
	// PBKDF2 make of the passphrase.
	require.LessOrEqual(t, after[0], 1)
	require.LessOrEqual(t, after[3], 2)
}

// counted is what the helper has found, before and after the lock.
func counted(t *testing.T, out []byte) (before, after [5]int) {
	t.Helper()
	_, err := fmt.Sscanf(string(out), "[%d %d %d %d %d] [%d %d %d %d %d]", &before[0], &before[1], &before[2],
		&before[3], &before[4], &after[0], &after[1], &after[2], &after[3], &after[4])
	require.NoError(t, err, "%s", out)
	return before, after
}

// An unlocked wallet has its keys in memory, and not the phrase that they come from.
func TestThePhraseIsNotHeld(t *testing.T) {
	dir := goldenHome(t)
	file := filepath.Join(dir, keystore.Name)
	require.NoError(t, os.WriteFile(file, keytest.File(t, "phrase"), 0o600))
	out, err := keytest.Command(t, "wipe", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	before, after := counted(t, out)
	require.Equal(t, 1, before[1], "it would find it")
	require.Zero(t, before[4])
	require.Zero(t, after[4])
}
