//go:build !unix

package child

import (
	"context"
	"errors"
	"io"
)

var errNoSuccessor = errors.New("there is no unlock agent on this system")

// Successor is this program, started again in the background, to be handed a secret.
type Successor struct{ Said io.Reader }

// Again does nothing here.
func Again([]string, []string) (*Successor, error) { return nil, errNoSuccessor }

// Give does nothing here.
func (s *Successor) Give(context.Context, []byte) error { return errNoSuccessor }

// End does nothing here.
func (s *Successor) End() {}

// Receive does nothing here.
func Receive(context.Context) ([]byte, error) { return nil, errNoSuccessor }
