//go:build !linux && !darwin && !windows

package socket

import (
	"context"
	"io/fs"
	"net"
)

// Root is the user who can be any other.
const Root User = "0"

// Self fails here, as all of this does.
func Self() (User, error) { return "", ErrUnsupported }

func Peer(net.Conn) (User, error) { return "", ErrUnsupported }

func CheckPath(string) error { return ErrUnsupported }

func Dial(context.Context, string, string) (net.Conn, error) { return nil, ErrNone }

func NewSecret(string) error { return nil }

func Listen(context.Context, string, fs.FileMode, string) (net.Listener, error) {
	return nil, ErrUnsupported
}
