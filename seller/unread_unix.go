//go:build unix

package seller

import (
	"io"
	"net"
	"syscall"
)

// unread reports whether bytes wait to be read from a connection; its end, if that came, is the error.
// Nothing is known of what is no socket.
func unread(conn net.Conn) (waiting bool, err error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false, nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var failed error
	err = raw.Control(func(fd uintptr) { // Go's sockets do not block
		n, _, failed = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
	})
	switch {
	case err != nil:
		return false, err
	case failed == syscall.EAGAIN: //nolint:errorlint // as the system gives it
		return false, nil
	case failed != nil:
		return false, failed
	case n == 0:
		return false, io.EOF
	}
	return true, nil
}
