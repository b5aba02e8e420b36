//go:build !linux && !darwin

package relay

import (
	"net"
	"os"

	"x402-wallet/internal/socket"
)

// sendFiles fails here.
func sendFiles(net.Conn, []byte, ...*os.File) error { return socket.ErrUnsupported }

// readFiles reads; no files come here.
func readFiles(c net.Conn, b []byte) (n int, files []*os.File, err error) {
	n, err = c.Read(b)
	return n, nil, err
}
