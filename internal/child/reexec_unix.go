//go:build unix

package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CanReexec reports whether this program can be started again to hold a secret.
const CanReexec = true

// Process is this program, started again in the background, to be handed a secret.
type Process struct {
	Stdout io.Reader // its stdout
	cmd    *exec.Cmd
	conn   *net.UnixConn // on which it says that it is closed
}

// Reexec starts this program again with these arguments and this environment. The child outlives its
// parent and its terminal. Where the system can (Linux, see closedProgram), nobody of its user can
// look into it from its first moment on.
func Reexec(args, env []string) (*Process, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	s, err := startSelf(args, env, theirs)
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	s.conn = ours
	return s, nil
}

func startSelf(args, env []string, handover *os.File) (p *Process, err error) {
	err = asSelf(func(program string) error {
		p, err = start(program, args, env, handover)
		return err
	})
	return p, err
}

func start(program string, args, env []string, handover *os.File) (*Process, error) {
	cmd := exec.Command(program, args...) //nolint:gosec,noctx // ourselves; it outlives us
	cmd.Env = append([]string{}, env...)
	cmd.ExtraFiles = []*os.File{handover} // handoverFD
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startApart(cmd); err != nil {
		return nil, err
	}
	return &Process{Stdout: out, cmd: cmd}, nil
}

// asSelf starts this program from a copy in memory, and falls back to its file where the system runs no such
// copy.
func asSelf(start func(program string) error) error {
	if program, done, err := closedProgram(); err == nil {
		err := start(program)
		done()
		if err == nil {
			return nil
		}
	}
	program, err := ownPath()
	if err != nil {
		return err
	}
	return start(program)
}

// startApart starts a process in a session of its own: it has no terminal, and no signal of ours.
func startApart(cmd *exec.Cmd) error {
	cmd.Args[0] = os.Args[0]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start this program again: %w", err)
	}
	return nil
}

// Start starts it, and gives what is to be waited for, and our end of its control connection.
func (h Handed) Start() (cmd *exec.Cmd, control *net.UnixConn, err error) {
	control, theirs, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = theirs.Close() }()
	err = asSelf(func(program string) error {
		cmd = exec.Command(program, h.Args...) //nolint:gosec,noctx // ourselves; the caller ends it
		cmd.Env, cmd.Dir = append([]string{}, h.Env...), "/"
		cmd.Stdin, cmd.Stdout, cmd.Stderr = h.Files[0], h.Files[1], h.Files[2]
		cmd.ExtraFiles = append([]*os.File{theirs}, h.Files[3:]...)
		return startApart(cmd)
	})
	if err != nil {
		_ = control.Close()
		return nil, nil, err
	}
	return cmd, control, nil
}

// SendSecret hands the secret over: it waits until the child says that it is closed, by a socket that it
// made after that, and checks that the kernel names that very process as the other end of the socket.
// What was open at its start, and may have been taken from it before it was closed, carries no secret.
// A child that does not get it is killed.
func (s *Process) SendSecret(ctx context.Context, secret []byte) (err error) {
	defer func() {
		_ = s.conn.Close()
		if err != nil {
			_ = s.cmd.Process.Kill()
		}
	}()
	_ = s.conn.SetDeadline(time.Now().Add(closedTimeout))
	defer context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })()
	secure, err := receiveSocket(s.conn)
	if err != nil {
		return fmt.Errorf("the process that was started did not say that it is closed: %w", err)
	}
	defer func() { _ = secure.Close() }()
	// It is our child, not waited for yet: no other process can have its number.
	if err := checkPeer(secure, s.cmd.Process.Pid); err != nil {
		return err
	}
	if tracer := tracerOf(s.cmd.Process.Pid); tracer != "" {
		return errors.New("a debugger is attached to the process that was started: " + tracer)
	}
	_ = secure.SetDeadline(time.Now().Add(closedTimeout))
	_, err = secure.Write(secret)
	return err
}

// End kills the child, if it still runs, and waits for it.
func (s *Process) End() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// ReceiveSecret is the child's side of [Process.SendSecret]: it returns the secret that the parent hands
// over, once at most. Its error says that the parent is gone, or that this process is open to others.
func ReceiveSecret(ctx context.Context) ([]byte, error) {
	parent, err := connOf(os.NewFile(handoverFD, "handover"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = parent.Close() }()
	if err := checkPeer(parent, os.Getppid()); err != nil {
		return nil, err
	}
	if err := checkClosed(); err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ours.Close() }()
	_, _, err = parent.WriteMsgUnix([]byte(closedMessage), unix.UnixRights(int(theirs.Fd())), nil)
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	_ = ours.SetDeadline(time.Now().Add(closedTimeout))
	defer context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Unix(1, 0)) })()
	secret := make([]byte, maxSecret)
	n, err := readWhole(ours, secret)
	if err == nil && n == 0 {
		err = errors.New("the parent gave nothing")
	}
	if err != nil {
		clear(secret)
		return nil, err
	}
	return secret[:n], nil
}

// readWhole reads up to the end, which must come before into is full.
func readWhole(from io.Reader, into []byte) (n int, err error) {
	for n < len(into) {
		var more int
		more, err = from.Read(into[n:])
		n += more
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, errors.New("what was handed over is too long")
}

// receiveSocket takes the one socket that comes with what a child says.
func receiveSocket(from *net.UnixConn) (*net.UnixConn, error) {
	text, rights := make([]byte, len(closedMessage)+1), make([]byte, unix.CmsgSpace(4))
	n, rightsN, _, _, err := from.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rightsN])
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range messages {
		got, _ := unix.ParseUnixRights(&m)
		fds = append(fds, got...)
	}
	if len(fds) != 1 || !bytes.Equal(text[:n], []byte(closedMessage)) {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, io.ErrUnexpectedEOF
	}
	unix.CloseOnExec(fds[0])
	return connOf(os.NewFile(uintptr(fds[0]), "secret"))
}

// socketPair gives one end to use and one to hand on.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[1]), "socket")
	ours, err = connOf(os.NewFile(uintptr(fds[0]), "socket"))
	if err != nil {
		_ = theirs.Close()
	}
	return ours, theirs, err
}

// connOf takes the file over.
func connOf(f *os.File) (*net.UnixConn, error) {
	defer func() { _ = f.Close() }()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errPeer
	}
	return socket, nil
}

// checkPeer makes sure who made the other end: this process, of this user.
func checkPeer(conn *net.UnixConn, pid int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer int
	var user uint32
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, user, failed = peerOf(int(fd)) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if peer != pid || int(user) != os.Geteuid() {
		return fmt.Errorf("%w: process %d of user %d", errPeer, peer, user)
	}
	return nil
}
