package agent

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	supported     = true
	maxSocketPath = 103 // sockaddr_un
)

// samePeer checks that the process at the other end runs as this one's user.
func samePeer(c net.Conn) error {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Xucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the process at the other end runs as user %d", peer.Uid)
	}
	return nil
}
