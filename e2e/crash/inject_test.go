//go:build crash && linux

package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The injector stops the wallet at its system calls and decides what becomes of each. It counts the
// calls of the whole process, so that (call, n) names one moment. strace's when=N does not: it
// counts every thread's calls alone, and the Go runtime moves goroutines between threads as it
// likes; of the 5 connects of a payment it can name 2 (docs: strace(1), and TestStraceSeesTheSame
// here). What is used instead is the kernel's seccomp user notification (seccomp_unotify(2)): a
// small launcher, which is this test binary, installs a filter, hands the listener over and becomes
// the unmodified wallet.

// what can become of a call.
const (
	kill      = "KILL"       // the process dies instead of making it
	killAfter = "KILL after" // it is made, and the process dies
	noSpace   = "ENOSPC"     // it fails, and so does every later one of its kind that needs the disk
	ioError   = "EIO"        // it fails, once
)

// fault is what is injected: at the n-th call of this kind.
type fault struct {
	call string
	n    int
	act  string
}

func (f fault) String() string { return fmt.Sprintf("%s #%d %s", f.call, f.n, f.act) }

// kinds are the calls that are stopped at. Some are told apart further: a write is a "write" to a
// file, a "send" to a socket or a "print" to a pipe; an openat that may make the file is a
// "create".
var kinds = map[uint32]string{
	unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_FSYNC: "fsync",
	unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_LINKAT:   "linkat",
	unix.SYS_UNLINKAT: "unlinkat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_OPENAT: "openat",
	unix.SYS_FLOCK: "flock",
	unix.SYS_FCNTL: "fcntl", unix.SYS_CONNECT: "connect", unix.SYS_SENDTO: "send", unix.SYS_CLOSE: "close",
}

// onDisk are the kinds that fail when a disk does.
var onDisk = map[string]bool{"write": true, "pwrite64": true, "fsync": true, "fdatasync": true,
	"ftruncate": true, "renameat": true,
	"renameat2": true, "linkat": true, "mkdirat": true, "create": true, "openat": true}

// call is one that the wallet made.
type call struct {
	kind   string
	n      int    // the n-th of its kind
	target string // what it was about: a file's name in the home, "socket", "stdout", …
}

// injector watches one process.
type injector struct {
	home     string
	fault    *fault // nil: only watch
	listener int
	process  *os.Process

	mu    sync.Mutex
	calls []call
	count map[string]int
	hit   bool
	full  bool // noSpace struck

	done chan struct{}
}

const launchEnv = "X402_CRASH_LAUNCH"

func init() {
	if os.Getenv(launchEnv) != "" {
		launch()
	}
}

// launch is the launcher's main function: it never returns.
func launch() {
	runtime.LockOSThread()
	_ = os.Unsetenv(launchEnv)
	die := func(doing string, err error) {
		fmt.Fprintln(os.Stderr, "launch:", doing+":", err)
		os.Exit(125)
	}
	const toParent = 3 // cmd.ExtraFiles
	syscall.CloseOnExec(toParent)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		die("no_new_privs", err)
	}
	filter := program()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		die("seccomp (a kernel ≥ 5.19 is needed)", errno)
	}
	if err := unix.Sendmsg(toParent, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		// not a call that is stopped at
		die("hand over the listener", err)
	}
	die("exec", syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
}

// program is the filter: the kinds go to the listener, everything else passes.
func program() []unix.SockFilter {
	list := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // seccomp_data.nr
	for nr := range kinds {
		list = append(list,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	return append(list, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
}

// watch makes cmd start under an injector. After cmd.Start call the returned function.
func watch(cmd *exec.Cmd, home string, f *fault) (*injector, func() error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "launcher")
	cmd.Args = append([]string{self}, cmd.Args...)
	cmd.Path, cmd.Env, cmd.ExtraFiles = self, append(cmd.Env, launchEnv+"=1"), []*os.File{theirs}
	i := &injector{home: home, fault: f, count: map[string]int{}, done: make(chan struct{})}
	return i, func() error {
		_ = theirs.Close()
		defer unix.Close(pair[0])
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			return err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(messages) == 0 {
			return errors.New("the launcher did not hand over its listener")
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil {
			return err
		}
		i.listener, i.process = fds[0], cmd.Process
		go i.serve()
		return nil
	}, nil
}

// notification and reply are struct seccomp_notif and struct seccomp_notif_resp.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type reply struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

// serve answers until the process is gone.
func (i *injector) serve() {
	defer close(i.done)
	defer unix.Close(i.listener)
	for {
		poll := []unix.PollFd{{Fd: int32(i.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
				return
			}
			continue
		}
		var asked notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(i.listener), unix.SECCOMP_IOCTL_NOTIF_RECV,
			uintptr(unsafe.Pointer(&asked))); errno != 0 {
			continue // it died meanwhile
		}
		i.answer(&asked)
	}
}

func (i *injector) answer(asked *notification) {
	act := i.decide(asked)
	if act == kill {
		_ = i.process.Kill() // and no answer: the call is never made
		return
	}
	answer := reply{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	switch act {
	case noSpace:
		answer.flags, answer.error = 0, -int32(unix.ENOSPC)
	case ioError:
		answer.flags, answer.error = 0, -int32(unix.EIO)
	}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(i.listener), unix.SECCOMP_IOCTL_NOTIF_SEND,
		uintptr(unsafe.Pointer(&answer)))
	if act == killAfter {
		_ = i.process.Kill()
	}
}

// decide counts the call and says what becomes of it.
func (i *injector) decide(asked *notification) string {
	kind, target := i.describe(asked)
	if kind == "" {
		return ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.count[kind]++
	i.calls = append(i.calls, call{kind, i.count[kind], target})
	switch f := i.fault; {
	case f == nil:
	case !i.hit && f.call == kind && f.n == i.count[kind]:
		if (f.act == noSpace || f.act == ioError) && !failing(f.act, kind, target) {
			break // this time it is about something that is not on the disk
		}
		i.hit, i.full = true, f.act == noSpace
		return f.act
	case i.full && failing(noSpace, kind, target):
		return noSpace
	}
	return ""
}

// failing reports whether a call can fail so on a broken disk: those on the files of the home can.
// A full one is still read.
func failing(act, kind, target string) bool {
	return onDisk[kind] && strings.HasPrefix(target, "home") && (act != noSpace || kind != "openat")
}

// describe names the call; "" for what is nobody's business: the runtime waking itself up,
// descriptors' flags.
func (i *injector) describe(asked *notification) (kind, target string) {
	kind = kinds[uint32(asked.nr)]
	switch kind {
	case "openat":
		if asked.args[2]&unix.O_CREAT != 0 {
			kind = "create"
		}
		return kind, i.name(i.path(asked, 1))
	case "unlinkat", "mkdirat", "linkat", "renameat", "renameat2":
		return kind, i.name(i.path(asked, 1))
	case "fcntl":
		if cmd := asked.args[1]; cmd != unix.F_SETLK && cmd != unix.F_SETLKW && cmd != unix.F_GETLK {
			return "", ""
		}
	}
	target, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", asked.pid, int32(asked.args[0])))
	if kind == "write" || kind == "close" {
		switch {
		case strings.HasPrefix(target, "anon_inode:"):
			return "", ""
		case kind == "close":
		case strings.HasPrefix(target, "socket:"):
			kind = "send"
		case strings.HasPrefix(target, "pipe:"):
			kind = "print"
		}
	}
	return kind, i.name(target)
}

// path reads a path out of the process's memory.
func (i *injector) path(asked *notification, arg int) string {
	buffer := make([]byte, 256)
	local := []unix.Iovec{{Base: &buffer[0], Len: uint64(len(buffer))}}
	for size := len(buffer); size > 0; size /= 2 { // less where the page ends
		remote := []unix.RemoteIovec{{Base: uintptr(asked.args[arg]), Len: size}}
		if n, err := unix.ProcessVMReadv(int(asked.pid), local, remote, 0); err == nil && n > 0 {
			text, _, _ := strings.Cut(string(buffer[:n]), "\x00")
			return text
		}
	}
	return "?"
}

// name shortens what differs from run to run.
func (i *injector) name(target string) string {
	if rest, inHome := strings.CutPrefix(target, i.home); inHome {
		rest = strings.TrimSuffix(strings.TrimPrefix(rest, "/"), " (deleted)")
		switch {
		case rest == "":
			return "home"
		case strings.HasPrefix(rest, "run/run_"):
			rest = "run/*"
		case strings.Contains(rest, "tmp"):
			rest, _, _ = strings.Cut(rest, "tmp")
			rest += "tmp*"
		}
		return "home/" + rest
	}
	if strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "pipe:") {
		kind, _, _ := strings.Cut(target, ":")
		return kind
	}
	if dir := filepath.Dir(target); strings.HasPrefix(dir, filepath.Dir(i.home)) {
		return filepath.Base(target)
	}
	return target
}

// seen is what was counted so far, and whether the fault struck.
func (i *injector) seen() ([]call, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]call(nil), i.calls...), i.hit
}
