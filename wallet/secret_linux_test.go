package wallet

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"x402-wallet/wallet/internal/guarded"
)

// pageFlags are the kernel's flags of the mapping that b begins in: lo is locked, dd is left out of
// core files (proc_pid_smaps(5)).
func pageFlags(t *testing.T, b []byte) []string {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	var at uint64
	_, err = fmt.Sscanf(fmt.Sprintf("%p", &b[0]), "0x%x", &at)
	require.NoError(t, err)
	inside := false
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= at && at < to
		}
		if flags, found := strings.CutPrefix(line, "VmFlags:"); found && inside {
			return strings.Fields(flags)
		}
	}
	t.Skip("this kernel does not tell what it did with memory")
	return nil
}

func mustLock(t *testing.T) {
	t.Helper()
	if err := LockedMemory(); err != nil {
		t.Skipf("nobody may lock memory here: %v", err)
	}
}

// Every key of an unlocked wallet lies in locked memory, and the last byte of it, too.
func TestKeysAreLockedIntoMemory(t *testing.T) {
	mustLock(t)
	w := goldenWallet(t)
	require.NoError(t, w.Unlock(t.Context()))
	k := w.keys
	passphrase := normalizeNFC([]byte(testPassphrase))
	parts := map[string][]byte{"solana": k.solana, "end of solana": k.solana[63:], "evm": k.evm.Secret[:],
		"work": k.evm.Work[:], "seal": k.seal[:], "end of seal": k.seal[31:], "passphrase": passphrase.Bytes,
		"plaintext": k.plaintext().Bytes}
	for name, b := range parts {
		flags := pageFlags(t, b)
		require.Contains(t, flags, "lo", name)
		require.Contains(t, flags, "dd", name)
	}
	w.Lock()
	passphrase.Wipe()
	for _, name := range []string{"solana", "evm", "seal", "passphrase"} {
		flags := pageFlags(t, parts[name])
		require.False(t, slices.Contains(flags, "lo") || slices.Contains(flags, "dd"), name)
		require.Equal(t, make([]byte, len(parts[name])), parts[name], name)
	}
}

// Secrets share no page: giving one back leaves the others locked. Larger than a page is fine,
// and wiping twice.
func TestSecretsShareNoPage(t *testing.T) {
	mustLock(t)
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
			require.Contains(t, pageFlags(t, other.Bytes), "lo")
			require.Contains(t, pageFlags(t, other.Bytes[len(other.Bytes)-1:]), "lo")
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
		return report(err)
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
	out, err := helperCommand(t, "no-memory-to-lock", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `^mlock: .+; <nil>$`, string(out))
}
