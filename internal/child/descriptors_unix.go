//go:build unix

package child

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepListed keeps the descriptors that a directory lists, however high they are.
func keepListed(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
