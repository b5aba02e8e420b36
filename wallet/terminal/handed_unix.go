//go:build unix

package terminal

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"x402-wallet/wallet/internal/coded"
)

// Handed is a terminal that came to this process from another one, of the person's own user, with a command
// of theirs. It takes the place of the controlling terminal, which this process does not have.
type Handed struct {
	Terminal *os.File // nil: there is none
	// Ask is called before the person is asked for a passphrase; its error, a text for them, keeps it from
	// that.
	Ask func() error
	// Typed is called when they have typed one, before anything is done with it.
	Typed func()
}

// handed is nil in a process of the person's own.
var handed atomic.Pointer[Handed]

// Use has the person asked there from now on.
func (h *Handed) Use() { handed.Store(h) }

func (h *Handed) open() (*Terminal, error) {
	if h.Terminal == nil {
		return nil, os.ErrNotExist
	}
	if err := h.Ask(); err != nil {
		e := coded.Locked("no passphrase is taken here now")
		e.Cause = err
		return nil, e
	}
	var fd int
	err := controlled(h.Terminal, func(handed int) (err error) {
		fd, err = unix.FcntlInt(uintptr(handed), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "terminal")
	return &Terminal{in: f, Out: f, typed: h.Typed}, nil
}
