//go:build unix

package wallet

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"x402-wallet/internal/ownfile"
)

// tryLock takes the lock that ends with the open file, or returns errBusy.
func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errBusy
	}
	return err
}

// lockDir takes the lock of a directory, or returns errBusy. A file system
// without locks is fine: there the second one finds the file changed.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := tryLock(d); errors.Is(err, errBusy) {
		_ = d.Close()
		return nil, err
	}
	return func() { _ = d.Close() }, nil
}

// removeStale removes a temporary file unless its creator lives.
func removeStale(path string) {
	f, err := ownfile.OpenNoFollow(path)
	if err != nil {
		return
	}
	defer f.Close()
	if tryLock(f) == nil {
		_ = os.Remove(path)
	}
}
