//go:build !linux && !darwin

package socket

import (
	"net"
	"os"
)

// SendFiles fails here.
func SendFiles(net.Conn, []byte, ...*os.File) error { return ErrUnsupported }

// ReadFiles fails here.
func ReadFiles(net.Conn, []byte) (n int, files []*os.File, err error) { return 0, nil, ErrUnsupported }
