//go:build !unix

package child

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
)

// CanReexec reports whether this program can be started again to hold a secret.
const CanReexec = false

var errNoAgent = errors.New("there is no unlock agent on this system")

// Process is this program, started again in the background, to be handed a secret.
type Process struct{ Stdout io.Reader }

// Reexec does nothing here.
func Reexec([]string, []string) (*Process, error) { return nil, errNoAgent }

// SendSecret does nothing here.
func (s *Process) SendSecret(context.Context, []byte) error { return errNoAgent }

// End does nothing here.
func (s *Process) End() {}

// Start fails here.
func (Handed) Start() (*exec.Cmd, *net.UnixConn, error) { return nil, nil, errors.ErrUnsupported }

// ReceiveSecret does nothing here.
func ReceiveSecret(context.Context) ([]byte, error) { return nil, errNoAgent }
