package keytest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/guarded"
)

// PageFlags are the kernel's flags of the mapping that b begins in: lo is locked, dd is left out of
// core files (proc_pid_smaps(5)).
func PageFlags(t testing.TB, b []byte) []string {
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

// MustLock skips a test where nobody may lock memory.
func MustLock(t testing.TB) {
	t.Helper()
	s := guarded.New(1)
	defer s.Wipe()
	if err := s.Held; err != nil {
		t.Skipf("nobody may lock memory here: %v", err)
	}
}
