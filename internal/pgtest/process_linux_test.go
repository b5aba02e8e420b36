package pgtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Of tests that are killed no server stays.
func TestServerEndsWithItsTests(t *testing.T) {
	tests := exec.Command(os.Args[0], "-test.run", "^$")
	tests.Env = append(os.Environ(), "PGTEST=alone")
	out := must.Get(tests.StdoutPipe())(t)
	require.NoError(t, tests.Start())
	defer func() { _ = tests.Process.Kill() }()
	var pid int
	var dir string
	lines := bufio.NewScanner(out)
	for pid == 0 && lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "server %d %s", &pid, &dir)
	}
	require.True(t, strings.HasPrefix(dir, os.TempDir()), dir)
	defer os.RemoveAll(dir)
	server := map[int]bool{pid: true}
	require.Equal(t, 1, must.Get(living(server))(t), "process %d", pid)

	require.NoError(t, tests.Process.Kill())
	_ = tests.Wait()
	require.Eventually(t, func() bool {
		n, err := living(server)
		return err == nil && n == 0
	}, patience, 10*time.Millisecond)
}
