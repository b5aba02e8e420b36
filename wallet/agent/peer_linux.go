package agent

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	supported     = true
	maxSocketPath = 107 // sockaddr_un
)

// samePeer checks that the process at the other end runs as this one's user.
func samePeer(c net.Conn) error {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return sameUser(int(peer.Uid))
}

func sameUser(uid int) error {
	if uid != os.Geteuid() {
		return fmt.Errorf("the process at the other end runs as user %d", uid)
	}
	return nil
}
