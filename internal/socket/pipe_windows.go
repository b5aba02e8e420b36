package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"runtime"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// Root is the user who can be any other: the system.
const Root User = "S-1-5-18"

// pipeBuffer is what waits in a pipe in each direction.
const pipeBuffer = 64 << 10

// NewSecret does nothing: see Unproven.
func NewSecret(string) error { return nil }

func Self() (User, error) { return userOf(windows.GetCurrentProcessToken()) }

func userOf(t windows.Token) (User, error) {
	u, err := t.GetTokenUser()
	if err != nil {
		return "", fmt.Errorf("the user of a token: %w", err)
	}
	return User(u.User.Sid.String()), nil
}

// CheckPath refuses nothing here: a pipe's name has one length whatever the path.
func CheckPath(string) error { return nil }

// pipeOf is the pipe of a path, the same for each way to write the path.
func pipeOf(path string) string {
	if pipeName(path) == path {
		return path
	}
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil { // and short names are long then
		path = filepath.Join(dir, filepath.Base(path))
	}
	return pipeName(path)
}

// conn is one end of a pipe.
type conn struct {
	net.Conn
	served bool // it is the server's end
}

func (c conn) handle() windows.Handle {
	return windows.Handle(c.Conn.(interface{ Fd() uintptr }).Fd())
}

// Peer is the user of the process at the other end of a pipe: of who opened it, or for a client, of who made
// it. ErrNotYet: see there.
func Peer(c net.Conn) (User, error) {
	pipe := c.(conn)
	if !pipe.served {
		return ownerOf(pipe.handle())
	}
	return clientOf(pipe.handle())
}

func ownerOf(pipe windows.Handle) (User, error) {
	found, err := windows.GetSecurityInfo(pipe, windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return "", fmt.Errorf("whose pipe it is: %w", err)
	}
	owner, _, err := found.Owner()
	if err != nil {
		return "", fmt.Errorf("whose pipe it is: %w", err)
	}
	return User(owner.String()), nil
}

var impersonate = windows.NewLazySystemDLL("advapi32.dll").NewProc("ImpersonateNamedPipeClient")

// clientOf asks for the token that the client opened the pipe with: its process may have ended, and its
// number may be another's by now. For a moment a thread is that user.
func clientOf(pipe windows.Handle) (user User, err error) {
	runtime.LockOSThread()
	if ok, _, err := impersonate.Call(uintptr(pipe)); ok == 0 {
		runtime.UnlockOSThread()
		if errors.Is(err, windows.ERROR_CANNOT_IMPERSONATE) {
			return "", ErrNotYet
		}
		return "", fmt.Errorf("who opened the pipe: %w", err)
	}
	var token windows.Token
	err = windows.OpenThreadToken(windows.CurrentThread(), windows.TOKEN_QUERY, true, &token)
	if reverted := windows.RevertToSelf(); reverted != nil {
		panic("this thread stays another user: " + reverted.Error()) // and whatever runs on it would
	}
	runtime.UnlockOSThread()
	if err != nil { // of an anonymous client, too
		return "", fmt.Errorf("who opened the pipe: %w", err)
	}
	defer func() { _ = token.Close() }()
	return userOf(token)
}

// Dial connects to who listens on the pipe of path; ErrNone where nobody does. Nothing was said to it yet,
// and it can learn who connected but not act as that user.
func Dial(ctx context.Context, path, _ string) (net.Conn, error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	raw, err := winio.DialPipeAccessImpLevel(ctx, pipeOf(path), pipeAccess, winio.PipeImpLevelIdentification)
	switch {
	case errors.Is(err, windows.ERROR_FILE_NOT_FOUND):
		return nil, ErrNone
	case err != nil:
		return nil, err
	}
	c := conn{Conn: raw}
	owner, err := Peer(c)
	if err == nil && !mayServe(owner, self) {
		err = fmt.Errorf("the pipe %s belongs to %s, who is neither this user nor the system",
			pipeOf(path), owner)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Listen makes the pipe of path, that may be connected to as mode says. A name that somebody has is refused.
func Listen(_ context.Context, path string, mode fs.FileMode, _ string) (net.Listener, error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	name := pipeOf(path)
	l, err := winio.ListenPipe(name, &winio.PipeConfig{SecurityDescriptor: descriptor(self, mode),
		InputBufferSize: pipeBuffer, OutputBufferSize: pipeBuffer})
	if err != nil {
		return nil, fmt.Errorf("make the pipe %s (is it somebody's already?): %w", name, err)
	}
	return listener{l}, nil
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{Conn: c, served: true}, nil
}
