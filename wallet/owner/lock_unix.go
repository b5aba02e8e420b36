//go:build unix

package owner

import (
	"errors"
	"os"

	"x402-wallet/wallet/internal/keystore"
)

// lockDir takes the lock of a directory, or returns keystore.ErrBusy. A file system
// without locks is fine: there the second one finds the file changed.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := keystore.TryLock(d); errors.Is(err, keystore.ErrBusy) {
		_ = d.Close()
		return nil, err
	}
	return func() { _ = d.Close() }, nil
}
