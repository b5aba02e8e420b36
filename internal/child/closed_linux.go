package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// memoryName begins the name of a program that runs from memory, in /proc/PID/exe.
const memoryName = "x402-wallet"

// closedProgram is a copy of this program in memory that not even its owner may read: so the system
// makes a process of it that no other program of the user can look into, from its first moment on
// (execve(2), "dumpable"). From a file that may be read, a process is open until it has closed
// itself, and memory that was opened meanwhile stays open. done is called when it was started.
//
// Root can read every file, so a process of root's is open for that moment. It fails where the system has
// no such files, or runs none.
func closedProgram() (path string, done func(), err error) {
	if policy, err := os.ReadFile("/proc/sys/vm/memfd_noexec"); err == nil && policy[0] == '2' {
		return "", nil, errors.New("the system runs no programs from memory")
	}
	own, err := os.Open(thisProgram)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = own.Close() }()
	fd, err := unix.MemfdCreate(memoryName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(memoryName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return "", nil, err
	}
	memory := os.NewFile(uintptr(fd), memoryName)
	_, err = io.Copy(memory, own)
	if err == nil {
		err = unix.Fchmod(fd, 0o111)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = memory.Close()
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { _ = memory.Close() }, nil
}

func ownPath() (string, error) { return thisProgram, nil }

// checkClosed makes sure that no other program of this user can look into this process.
func checkClosed() error {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return err
	}
	if dumpable == 1 {
		return errors.New("this process is open to other programs of its user")
	}
	if tracer := tracerOf(os.Getpid()); tracer != "" {
		return errors.New("a debugger is attached to this process: " + tracer)
	}
	// A program from memory is called by the number of its descriptor.
	_ = os.WriteFile("/proc/self/comm", []byte(memoryName), 0)
	return nil
}

// tracerOf is the process that debugs another, "" when there is none: whoever began before the
// process was closed goes on afterwards.
func tracerOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "it cannot be told (" + err.Error() + ")"
	}
	_, after, _ := bytes.Cut(text, []byte("\nTracerPid:"))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	value := string(bytes.TrimSpace(line))
	if value != "0" {
		return "process " + value
	}
	return ""
}

func peerOf(fd int) (pid int, user uint32, err error) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(peer.Pid), peer.Uid, nil
}
