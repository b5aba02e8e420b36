package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// ListenOwn listens for processes of this process's own user alone. From others nothing can be read.
func ListenOwn(ctx context.Context, path, home string) (net.Listener, error) {
	l, err := Listen(ctx, path, 0o600, home)
	if err != nil {
		return nil, err
	}
	return ownListener{l}, nil
}

// DialOwn is Dial, and refuses a listener of another user's.
func DialOwn(ctx context.Context, path, home string) (net.Conn, error) {
	conn, err := Dial(ctx, path, home)
	if err != nil {
		return nil, err
	}
	err = checkOwn(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

type ownListener struct{ net.Listener }

func (l ownListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return readByOwn{conn}, nil
}

type readByOwn struct{ net.Conn }

func (c readByOwn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	if err == nil {
		err = checkOwn(c.Conn) // not before: see ErrNotYet
	}
	if err != nil {
		n = 0
	}
	return n, err
}

func checkOwn(conn net.Conn) error {
	user, err := Peer(conn)
	if err != nil {
		return err
	}
	self, err := Self()
	if err != nil {
		return err
	}
	return refuseOther(user, self)
}

func refuseOther(user, self User) error {
	switch user {
	case self:
		return nil
	case Unproven:
		return errors.New("the program at the other end cannot read the wallet's home")
	}
	return fmt.Errorf("the process at the other end runs as user %s", user)
}
