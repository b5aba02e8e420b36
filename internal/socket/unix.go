//go:build linux || darwin

package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Root is the user who can be any other.
const Root User = "0"

func Self() (User, error) { return self(), nil }

func self() User { return uid(uint32(os.Geteuid())) } //nolint:gosec // a uid has 32 bits

func uid(n uint32) User { return User(strconv.FormatUint(uint64(n), 10)) }

// Peer is the user of the process at the other end of a connection, when it connected.
func Peer(c net.Conn) (User, error) {
	if own, is := c.(*ownConn); is {
		if own.user == "" {
			return "", ErrNotYet
		}
		return own.user, nil
	}
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var user uint32
	var failed error
	if err := raw.Control(func(fd uintptr) { user, failed = peerUser(int(fd)) }); err != nil {
		return "", err
	}
	return uid(user), failed
}

// CheckPath refuses a path that is too long for a socket of this system.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("the path of the socket has %d bytes, the system allows %d", len(path), maxPath)
	}
	return nil
}

// Dial connects to who listens at path; ErrNone where nobody does. The secret of home is for a socket whose
// listener has one.
func Dial(ctx context.Context, path, home string) (net.Conn, error) {
	if CheckPath(path) != nil {
		return nil, ErrNone
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNone
	}
	if err != nil || home == "" {
		return conn, err
	}
	user, err := Peer(conn)
	if err == nil && user == self() {
		secret, unreadable := readSecret(home)
		if unreadable != nil {
			secret = make([]byte, secretSize)
		}
		_, err = conn.Write(secret)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Listen makes a socket that may be connected to as mode says. What was there is replaced if it is a socket:
// the caller has found that nobody listens there. Without a home no secret is asked for.
func Listen(ctx context.Context, path string, mode fs.FileMode, home string) (net.Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	if home != "" {
		if _, err := readSecret(home); err != nil { // before the socket: who sees it can show the secret
			if err := NewSecret(home); err != nil {
				return nil, err
			}
		}
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
	if home == "" {
		return l, nil
	}
	return secretListener{UnixListener: l.(*net.UnixListener), home: home}, nil
}
