//go:build unix && !linux

package child

import (
	"errors"
	"os"
)

// closedProgram: only Linux starts a process that is closed from its first moment on. Elsewhere a
// debugger needs the user's or root's leave (macOS asks for it), and what is inherited cannot be
// opened by others.
func closedProgram() (path string, done func(), err error) {
	return "", nil, errors.New("not on this system")
}

func ownPath() (string, error) { return os.Executable() }

func checkClosed() error { return nil }

func tracerOf(int) string { return "" }
