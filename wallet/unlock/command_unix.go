//go:build unix

package unlock

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"x402-wallet/wallet"
)

// runInto runs a command, whose output goes into out over a socket. Another program of the same user
// could open the reading end of a pipe by the command's /proc/PID/fd/1, and take the passphrase out;
// a socket cannot be opened there, and what is taken of the command's end gives nothing to read.
func runInto(cmd *exec.Cmd, out io.Writer) error {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
		err = unix.SetNonblock(fds[0], true) // so that its reading can be ended
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output")
	defer func() { _ = ours.Close() }()
	cmd.Stdout = theirs
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() {
		err := copyWiping(out, ours)
		_ = ours.Close() // where it was too much, the command's next write ends it
		read <- err
	}()
	err = cmd.Wait()
	// children that it left behind may hold its output
	_ = ours.SetReadDeadline(time.Now().Add(commandWaitDelay))
	failed := <-read
	if errors.Is(failed, os.ErrDeadlineExceeded) {
		failed = exec.ErrWaitDelay
	}
	return errors.Join(err, failed)
}

// copyWiping is io.Copy that leaves nothing behind.
func copyWiping(to io.Writer, from io.Reader) error {
	buffer := make([]byte, wallet.MaxLine)
	defer clear(buffer)
	for {
		n, err := from.Read(buffer)
		if _, failed := to.Write(buffer[:n]); failed != nil {
			return failed
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
