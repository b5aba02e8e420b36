package wallet

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/keystore/keytest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hardened runs in another process, for Harden cannot be taken back.
func hardened() int {
	if err := Harden(); err != nil {
		return keytest.Report(err)
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	var core unix.Rlimit
	if err == nil {
		err = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	}
	if err != nil {
		return keytest.Report(err)
	}
	exe, err := os.Executable() // /proc/self still works for the process itself
	fmt.Print(dumpable, core.Cur, core.Max, exe != "", err)
	return 0
}

func TestHarden(t *testing.T) {
	out, err := keytest.Command(t, "harden", "").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "0 0 0 true <nil>", string(out))
}

// What a process was started with stays in /proc/PID/environ, though it took it out of its
// environment (measured). Not being dumpable closes that to other programs of the
// same user. Another user's process is needed to see it, so root runs it.
func TestEnvironmentIsClosed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root can look with other users' eyes")
	}
	const nobody = 65534
	as := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd
	}
	self := must.Get(os.Executable())(t)
	dir := must.Get(os.MkdirTemp("", "wallet"))(t) // that others may enter
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // the point
	text := must.Get(os.ReadFile(self))(t)
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, text, 0o755)) //nolint:gosec // the point

	for helper, readable := range map[string]bool{"wait": true, "harden-wait": false} {
		cmd := as(keytest.Command(t, helper, ""))
		cmd.Path, cmd.Dir = program, "/"
		cmd.Env = append(cmd.Env, "X402_WALLET_PASSPHRASE="+keytest.Passphrase)
		in := must.Get(cmd.StdinPipe())(t)
		out := must.Get(cmd.StdoutPipe())(t)
		require.NoError(t, cmd.Start())
		must.Get(out.Read(make([]byte, 1)))(t) // it stands
		seen, err := as(exec.CommandContext(t.Context(), "cat", fmt.Sprintf("/proc/%d/environ",
			cmd.Process.Pid))).CombinedOutput()
		require.Equal(t, readable, err == nil, "%s: %v", helper, err)
		require.Equal(t, readable, strings.Contains(string(seen), keytest.Passphrase), helper)
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	}
}

// standing is a process that is there until its input ends.
func standing(harden bool) int {
	if harden {
		if err := Harden(); err != nil {
			return keytest.Report(err)
		}
	}
	fmt.Print(".")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
