// Package socket is connections between processes of one machine: Unix sockets, and on Windows named pipes.
// They are made for whom they are meant for, with a way to know whose process is at the other end. The unlock
// agent and the wallet's service listen on them.
//
// What must stay true: whose process it is says the kernel, never the process. A process counts as one of the
// listener's own user only if it can read the home as well: programs that the wallet starts and confines have
// the same user, and cannot.
//
// The files: unix.go and secret_unix.go with user_linux.go and user_darwin.go; pipe_windows.go with pipe.go,
// which is what of pipes can be tried on every system.
package socket

import (
	"errors"
	"os/user"
)

var (
	// ErrUnsupported: on this system nothing can tell whose process is at the other end.
	ErrUnsupported = errors.New("a socket of this system cannot tell who asks")
	// ErrNone: nobody listens there.
	ErrNone = errors.New("nobody listens there")
	// ErrNotYet: who connected can be told only once something was read of it.
	ErrNotYet = errors.New("nothing was read yet of who connected")
)

// User is a user of the operating system: a uid in digits, on Windows a SID (S-1-5-21-…).
type User string

// Unproven is a process of the listener's own user that did not show the secret of the home. On Windows
// nothing is confined, so that every program of the user could read a secret: there is none.
const Unproven User = "?"

// Login is the user's name; "" where nobody knows one. On Windows it is DOMAIN\name.
func (u User) Login() string {
	known, err := user.LookupId(string(u))
	if err != nil {
		return ""
	}
	return known.Username
}
