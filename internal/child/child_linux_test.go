package child

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
)

const testSecret = "correct horse battery staple"

// runRole is a child process in one of its roles.
func runRole(args []string) (code int, hasRole bool) {
	if len(args) < 2 {
		return 0, false
	}
	receive := func() int {
		secret, err := ReceiveSecret(context.Background())
		fmt.Println(string(secret), err)
		return 0
	}
	switch args[1] {
	case "closed":
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			fmt.Println(err)
			return 1, true
		}
		return receive(), true
	case "open":
		return receive(), true
	case "silent":
		_, _ = io.Copy(io.Discard, os.NewFile(handoverFD, ""))
		return 0, true
	case "impostor": // the socket was taken from the child, and another process speaks on it
		cmd := exec.Command(thisProgram, "impersonate")
		cmd.ExtraFiles = []*os.File{os.NewFile(handoverFD, "")}
		out, _ := cmd.CombinedOutput()
		fmt.Println(string(out))
		return 0, true
	case "stranger": // what the child says it has from another process
		cmd := exec.Command(thisProgram, "closed")
		cmd.ExtraFiles = []*os.File{os.NewFile(handoverFD, "")}
		out, _ := cmd.CombinedOutput()
		fmt.Println(string(out))
		return 0, true
	case "impersonate":
		return impersonate(), true
	}
	return 0, false
}

// impersonate says what a child says, without being one.
func impersonate() int {
	conn, err := connOf(os.NewFile(handoverFD, ""))
	if err != nil {
		return 1
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return 1
	}
	_, _, _ = conn.WriteMsgUnix([]byte(closedMessage), unix.UnixRights(int(theirs.Fd())), nil)
	_ = theirs.Close()
	_ = conn.Close()
	got, _ := io.ReadAll(ours)
	fmt.Println("stolen:", string(got))
	return 0
}

// startRole starts a child from this program's file, as where none can be made from memory.
func startRole(t *testing.T, role string) *Process {
	t.Helper()
	ours, theirs, err := socketPair()
	require.NoError(t, err)
	s := must.Get(start(thisProgram, []string{role}, nil, theirs))(t)
	require.NoError(t, theirs.Close())
	s.conn = ours
	t.Cleanup(s.End)
	return s
}

func firstLine(t *testing.T, s *Process) string {
	t.Helper()
	line, _ := bufio.NewReader(s.Stdout).ReadString('\n')
	return strings.TrimSpace(line)
}

func TestHandover(t *testing.T) {
	s := startRole(t, "closed")
	require.NoError(t, s.SendSecret(t.Context(), []byte(testSecret)))
	require.Equal(t, testSecret+" <nil>", firstLine(t, s))

	child := must.Get(Reexec([]string{"closed"}, nil))(t)
	t.Cleanup(child.End)
	exe := must.Get(os.Readlink(fmt.Sprintf("/proc/%d/exe", child.cmd.Process.Pid)))(t)
	require.Contains(t, exe, "memfd:", "from memory")
	require.NoError(t, child.SendSecret(t.Context(), []byte(testSecret)))
	require.Equal(t, testSecret+" <nil>", firstLine(t, child))
}

// A process that others can look into takes no secret.
func TestAnOpenProcessTakesNoSecret(t *testing.T) {
	s := startRole(t, "open")
	require.Error(t, s.SendSecret(t.Context(), []byte(testSecret)))
	require.NotContains(t, firstLine(t, s), testSecret)
}

// Whoever took the socket from the child before it was closed gets nothing by it.
func TestAnotherProcessOnTheSocketGetsNothing(t *testing.T) {
	s := startRole(t, "impostor")
	require.ErrorIs(t, s.SendSecret(t.Context(), []byte(testSecret)), errPeer)
	require.NotContains(t, firstLine(t, s), testSecret)
}

// A child takes its secret from its parent, and from nobody else.
func TestAStrangersSocketIsRefused(t *testing.T) {
	s := startRole(t, "stranger")
	require.Error(t, s.SendSecret(t.Context(), []byte(testSecret)))
	require.Contains(t, firstLine(t, s), errPeer.Error())
}

// A child that is killed, or says nothing, gets nothing, and nobody waits for it.
func TestAChildThatDies(t *testing.T) {
	s := startRole(t, "silent")
	require.NoError(t, s.cmd.Process.Kill())
	require.Error(t, s.SendSecret(t.Context(), []byte(testSecret)))

	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.Error(t, startRole(t, "silent").SendSecret(ctx, []byte(testSecret)))
}

func TestADebuggerIsSeen(t *testing.T) {
	require.Empty(t, tracerOf(os.Getpid()))
	require.NotEmpty(t, tracerOf(1<<30))
}

// What came from outside is kept from children, however high its number.
func TestKeepDescriptors(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	high := int(min(limit.Cur-1, 2000))
	isKept := func() bool {
		return must.Get(unix.FcntlInt(uintptr(high), unix.F_GETFD, 0))(t)&unix.FD_CLOEXEC != 0
	}
	for _, keep := range []func(){KeepDescriptors, func() { keepListed("/proc/self/fd") }} {
		require.NoError(t, unix.Dup3(0, high, 0))
		require.False(t, isKept())
		keep()
		require.True(t, isKept())
		require.NoError(t, unix.Close(high))
	}
}

// confinedShell runs a script that is kept from dir.
func confinedShell(t *testing.T, dir, script string) string {
	t.Helper()
	p := Program{Argv: childtest.Script(dir, script), Env: []string{childtest.Env},
		Sandbox: Sandbox{Closed: []string{dir}, Required: true}}
	cmd := must.Get(p.Command())(t)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

func TestConfined(t *testing.T) {
	if why := Unsupported(); why != "" {
		t.Skip("NOT TESTED HERE, because of this kernel: " + why)
	}
	at := t.TempDir()
	closed, open := filepath.Join(at, "closed"), filepath.Join(at, "open")
	require.NoError(t, os.Mkdir(closed, 0o700))
	require.NoError(t, os.Mkdir(open, 0o700))
	file := filepath.Join(closed, "keystore")
	require.NoError(t, os.WriteFile(file, []byte(testSecret), 0o600))
	require.NoError(t, os.Symlink(closed, filepath.Join(open, "link")))
	require.NoError(t, os.Symlink(closed, filepath.Join(at, "alias")))
	for _, name := range []string{closed, filepath.Join(at, "alias")} { // by its own name or another
		said := confinedShell(t, name, fmt.Sprintf(`cat %[1]s/keystore; cat %[2]s/link/keystore; ls %[1]s
			(cd %[1]s && cat keystore); sh -c 'sh -c "cat %[1]s/keystore"'; cat /proc/self/root%[1]s/keystore
			ln %[1]s/keystore %[2]s/hard && cat %[2]s/hard; mv %[1]s/keystore %[2]s/moved
			( : > %[1]s/keystore )
			echo worked > %[2]s/work && cat %[2]s/work; echo no > %[3]s/new`, closed, open, at))
		require.NotContains(t, said, testSecret)
		require.Contains(t, said, "worked")
		require.Equal(t, testSecret, string(must.Get(os.ReadFile(file))(t)))
		require.NoFileExists(t, filepath.Join(at, "new"))
	}
	require.Contains(t, confinedShell(t, filepath.Join(at, "gone"), "echo ran"), "is not started")
}

// Programs that fetch others find the directory for them, which they could not make.
func TestACacheIsThere(t *testing.T) {
	if why := Unsupported(); why != "" {
		t.Skip("NOT TESTED HERE, because of this kernel: " + why)
	}
	home := t.TempDir()
	wallet, bin := filepath.Join(home, ".config", "wallet"), filepath.Join(t.TempDir(), "npx")
	require.NoError(t, os.MkdirAll(wallet, 0o700))
	childtest.Write(t, bin, `echo kept > "$HOME/.npm/x"; echo no > "$HOME/x"`)
	cmd := must.Get(Program{Argv: []string{bin}, Env: []string{"HOME=" + home, childtest.Env},
		Sandbox: Sandbox{Closed: []string{wallet}, Required: true}}.Command())(t)
	_, _ = cmd.CombinedOutput()
	require.FileExists(t, filepath.Join(home, ".npm", "x"))
	require.NoFileExists(t, filepath.Join(home, "x"))
}

// What cannot be confined is not started where it has to be.
func TestWhatCannotBeConfined(t *testing.T) {
	if why := Unsupported(); why != "" {
		t.Skip("NOT TESTED HERE, because of this kernel: " + why)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	childtest.Write(t, program, "echo ran")
	p := Program{Argv: []string{program}, Sandbox: Sandbox{Closed: []string{dir}}}
	check := func(why string) {
		require.Contains(t, p.Unconfined(), why)
		require.Equal(t, program, must.Get(p.Command())(t).Path, "as it is")
		required := p
		required.Sandbox.Required = true
		require.ErrorIs(t, must.Err(required.Command()), ErrUnconfined)
	}
	check("lies in what is closed")
	p.Sandbox.Closed = []string{t.TempDir()}
	require.Empty(t, p.Unconfined())
	require.NoError(t, os.Chmod(program, 0o700|os.ModeSetuid))
	check("setuid")
}

// What is closed is closed under each name that it has by another mount.
func TestElsewhere(t *testing.T) {
	list := mounts(`21 1 8:1 / / rw - ext4 /dev/a rw
22 21 8:2 / /home rw - ext4 /dev/b rw
23 21 8:2 /me /mnt/of\040me rw shared:1 - ext4 /dev/b rw
24 21 8:2 /me/.config/wallet/run /mnt/run rw - ext4 /dev/b rw
25 21 8:2 /other /mnt/other rw - ext4 /dev/b rw
26 21 8:1 / /host rw - ext4 /dev/a rw
27 21 0:5 / /proc rw - proc proc rw
28 21 0:9 /@ /btrfs rw - btrfs /dev/c rw
29 21 0:9 / /btrfs-top rw - btrfs /dev/c rw
short
`)
	require.Len(t, list, 9)
	for _, c := range []struct{ path, others string }{
		{"/home/me/.config/wallet", "[/mnt/of me/.config/wallet /mnt/run]"},
		{"/home/me", "[/mnt/of me /mnt/run]"},
		{"/etc/secret", "[/host/etc/secret]"},
		{"/btrfs/secret", "[/btrfs-top/@/secret]"},
		{"/proc/1", "[]"},
	} {
		require.Equal(t, c.others, fmt.Sprint(elsewhere([]string{c.path}, list)), c.path)
	}
	require.Empty(t, elsewhere([]string{"/home/x"}, nil))
}

// A file that is made later is closed as well, where there is a directory for it.
func TestWhatIsNotThereYetIsClosed(t *testing.T) {
	dir := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	require.Equal(t, []string{filepath.Join(dir, "later")}, realPaths([]string{
		filepath.Join(dir, "link", "later"), filepath.Join(dir, "gone", "later")}))
}
