//go:build unix

package keystore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"x402-wallet/internal/ownfile"
)

// TryLock takes the lock that ends with the open file, or returns ErrBusy.
func TryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// removeStale removes a temporary file unless its creator lives.
func removeStale(path string) {
	f, err := ownfile.OpenNoFollow(path)
	if err != nil {
		return
	}
	defer f.Close()
	if TryLock(f) == nil {
		_ = os.Remove(path)
	}
}
