//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

func Open() (*Terminal, error) {
	if h := handed.Load(); h != nil {
		return h.open()
	}
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &Terminal{in: f, Out: f}, nil
}

// hide turns the echo off; show puts the terminal back as it was, also when it
// is called twice or after close.
func (t *Terminal) hide() (show func(), err error) {
	var before *unix.Termios
	err = t.control(func(fd int) (err error) {
		if before, err = unix.IoctlGetTermios(fd, getTermios); err != nil {
			return err
		}
		hidden := *before
		hidden.Lflag &^= unix.ECHO
		hidden.Lflag |= unix.ICANON | unix.ISIG
		hidden.Iflag |= unix.ICRNL
		return unix.IoctlSetTermios(fd, setTermios, &hidden)
	})
	return func() {
		_ = t.control(func(fd int) error { return unix.IoctlSetTermios(fd, setTermios, before) })
	}, err
}

// control is safe against a close at the same time, which a bare fd is not.
func (t *Terminal) control(f func(fd int) error) error { return controlled(t.in, f) }

func controlled(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}
