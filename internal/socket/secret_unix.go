//go:build linux || darwin

package socket

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"io"
	"net"
	"path/filepath"

	"x402-wallet/internal/ownfile"
)

// A process that connects to a socket of its own user first sends what this file of the home contains, or
// zeros if it cannot read it. Others send nothing of it: both sides know the other's user by the kernel.
const (
	secretFile = "sockets.secret"
	secretSize = 26 // of rand.Text
)

// NewSecret replaces the secret of a home. It is asked of the next caller.
func NewSecret(home string) error {
	return ownfile.Write(filepath.Join(home, secretFile), []byte(rand.Text()))
}

// readSecret fails if there is no whole secret.
func readSecret(home string) ([]byte, error) {
	secret, _, err := ownfile.Read(filepath.Join(home, secretFile), secretSize)
	if err == nil && len(secret) < secretSize {
		err = io.ErrUnexpectedEOF
	}
	return secret, err
}

// secretListener asks the processes of its own user for the secret of a home.
type secretListener struct {
	*net.UnixListener
	home string
}

func (l secretListener) Accept() (net.Conn, error) {
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	user, err := Peer(conn)
	if err == nil && user != self() {
		return conn, nil
	}
	return &ownConn{UnixConn: conn, home: l.home}, nil
}

// ownConn is the server's end of a connection that its own user made. The first read, which one goroutine
// makes, takes the secret.
type ownConn struct {
	*net.UnixConn
	home string
	user User // "" before
	err  error
}

func (c *ownConn) Read(p []byte) (int, error) {
	if err := c.takeSecret(); err != nil {
		return 0, err
	}
	return c.UnixConn.Read(p)
}

func (c *ownConn) ReadMsgUnix(p, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	if err := c.takeSecret(); err != nil {
		return 0, 0, 0, nil, err
	}
	return c.UnixConn.ReadMsgUnix(p, oob)
}

func (c *ownConn) takeSecret() error {
	if c.user != "" || c.err != nil {
		return c.err
	}
	shown := make([]byte, secretSize)
	_, c.err = io.ReadFull(c.UnixConn, shown)
	secret, err := readSecret(c.home) // each time: it may have been replaced
	c.err = cmp.Or(c.err, err)
	switch {
	case c.err != nil:
	case subtle.ConstantTimeCompare(shown, secret) == 1:
		c.user = self()
	default:
		c.user = Unproven
	}
	return c.err
}
