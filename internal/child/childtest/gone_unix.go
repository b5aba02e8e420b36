//go:build unix

package childtest

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// WaitGone waits until the process has ended whose number a script noted ($$, $!), if nobody waited for it
// yet.
func WaitGone(t testing.TB, number string) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(number))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		return syscall.Kill(pid, 0) != nil || (err == nil && strings.HasPrefix(state, "Z"))
	}, 10*time.Second, time.Millisecond)
}
