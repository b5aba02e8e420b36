package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// peerOf knows the process that used the other end last. Of a pair of sockets the system does not
// tell the user; the process is our own parent or child in any case.
func peerOf(fd int) (pid int, user uint32, err error) {
	pid, err = unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return pid, uint32(os.Geteuid()), err //nolint:gosec // a user's number
}
