//go:build !linux && !darwin

package socket

import (
	"net"
	"os"
)

// SendFiles fails here.
func SendFiles(net.Conn, []byte, ...*os.File) error { return ErrUnsupported }

// ReadFiles reads; no files come here.
func ReadFiles(c net.Conn, b []byte) (n int, files []*os.File, err error) {
	n, err = c.Read(b)
	return n, nil, err
}
