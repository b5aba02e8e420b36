//go:build !windows

package guarded

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// holdPages keeps the pages that b lies on in memory, and so out of swap.
func holdPages(b []byte) error {
	if err := unix.Mlock(b); err != nil { // whole pages: it rounds down and up
		return fmt.Errorf("mlock: %w", err)
	}
	return nil
}

func releasePages(b []byte) { _ = unix.Munlock(b) }
