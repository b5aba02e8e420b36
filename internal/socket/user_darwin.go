package socket

import "golang.org/x/sys/unix"

const maxPath = 103 // sockaddr_un

// peerUser is the user at the other end of a socket.
func peerUser(fd int) (uint32, error) {
	peer, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return peer.Uid, nil
}
