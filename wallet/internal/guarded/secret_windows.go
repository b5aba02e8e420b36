package guarded

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// holdPages keeps the pages that b lies on in the working set, and so out of the page file.
func holdPages(b []byte) error {
	if err := windows.VirtualLock(address(b), uintptr(len(b))); err != nil {
		return fmt.Errorf("VirtualLock: %w", err)
	}
	return nil
}

func releasePages(b []byte) { _ = windows.VirtualUnlock(address(b), uintptr(len(b))) }

func address(b []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b))) //nolint:gosec // for the system, which reads nothing
}
