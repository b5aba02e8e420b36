// Package socket is Unix sockets between processes of one machine: made for whom they are meant for, and
// with a way to know whose process is at the other end. The unlock agent and the wallet's service listen
// on them.
//
// What must stay true: whose process it is says the kernel, never the process.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// ErrUnsupported: on this system a socket cannot tell whose process is at its other end.
var ErrUnsupported = errors.New("a socket of this system cannot tell who asks")

// MaxFiles is how many files are taken with one message: stdin, stdout, stderr and a terminal.
const MaxFiles = 4

// User is the user (uid) of the process at the other end of a Unix socket, when it connected.
func User(c net.Conn) (uint32, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var user uint32
	var failed error
	if err := raw.Control(func(fd uintptr) { user, failed = peerUser(int(fd)) }); err != nil {
		return 0, err
	}
	return user, failed
}

// CheckPath refuses a path that is too long for a socket of this system.
func CheckPath(path string) error {
	switch {
	case !Supported:
		return ErrUnsupported
	case len(path) > maxPath:
		return fmt.Errorf("the path of the socket has %d bytes, the system allows %d", len(path), maxPath)
	}
	return nil
}

// Listen makes a socket that may be connected to as mode says. What was there is replaced if it is a socket:
// the caller has found that nobody listens there.
func Listen(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	old, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case old.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there, and no socket", path)
	default:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	// until then nobody but this user can connect, by umask or the folder
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
