package wallet

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// Every key of an unlocked wallet lies in locked memory, and the last byte of it, too.
func TestKeysAreLockedIntoMemory(t *testing.T) {
	keytest.MustLock(t)
	w := goldenWallet(t)
	require.NoError(t, w.Unlock(t.Context()))
	k := w.keys
	passphrase := keystore.NFC([]byte(keytest.Passphrase))
	parts := map[string][]byte{"solana": k.Solana, "end of solana": k.Solana[63:], "evm": k.EVM.Secret[:],
		"work": k.EVM.Work[:], "seal": k.Seal[:], "end of seal": k.Seal[31:], "passphrase": passphrase.Bytes}
	for name, b := range parts {
		flags := keytest.PageFlags(t, b)
		require.Contains(t, flags, "lo", name)
		require.Contains(t, flags, "dd", name)
	}
	w.Lock()
	passphrase.Wipe()
	for _, name := range []string{"solana", "evm", "seal", "passphrase"} {
		flags := keytest.PageFlags(t, parts[name])
		require.False(t, slices.Contains(flags, "lo") || slices.Contains(flags, "dd"), name)
		require.Equal(t, make([]byte, len(parts[name])), parts[name], name)
	}
}

// Secrets share no page: giving one back leaves the others locked. Larger than a page is fine,
// and wiping twice.
func TestSecretsShareNoPage(t *testing.T) {
	keytest.MustLock(t)
	var list []*guarded.Memory
	for _, size := range []int{1, 32, os.Getpagesize(), os.Getpagesize() + 1, 3 * os.Getpagesize(), 1} {
		s := guarded.New(size)
		require.NoError(t, s.Held)
		require.Len(t, s.Bytes, size)
		list = append(list, s)
	}
	for i, s := range list {
		s.Wipe()
		s.Wipe()
		for _, other := range list[i+1:] {
			require.Contains(t, keytest.PageFlags(t, other.Bytes), "lo")
			require.Contains(t, keytest.PageFlags(t, other.Bytes[len(other.Bytes)-1:]), "lo")
		}
	}
	var none *guarded.Memory
	none.Wipe()
}

// withoutLockedMemory runs in another process: one that may lock no memory opens a wallet and signs.
func withoutLockedMemory(ctx context.Context) int {
	runtime.LockOSThread() // capabilities belong to threads
	self := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	err := unix.Capget(&self, &caps[0])
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	if err == nil {
		err = unix.Capset(&self, &caps[0])
	}
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{})
	}
	if err != nil {
		return keytest.Report(err)
	}
	w, err := Open(os.Getenv("WALLET_TEST_DIR"))
	if err == nil {
		err = w.Unlock(ctx, Outside.FromFile(os.Getenv("WALLET_TEST_DIR")+"/passphrase"))
	}
	if err == nil {
		_, err = w.signDigest(ctx, [32]byte{1})
	}
	fmt.Print(LockedMemory(), "; ", err)
	return 0
}

// A limit that is too small, as in many containers, stops nothing, and is told.
func TestNoMemoryToLock(t *testing.T) {
	dir := goldenHome(t)
	out, err := keytest.Command(t, "no-memory-to-lock", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `^mlock: .+; <nil>$`, string(out))
}
