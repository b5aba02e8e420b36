package history

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushData puts what is in a file on the disk, and of what is known about it only what it takes to read it
// again, such as its size: not its times, which would cost another write.
func flushData(file *os.File) error {
	for {
		err := unix.Fdatasync(int(file.Fd()))
		if err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
