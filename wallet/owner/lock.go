package owner

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
)

// LockAll asks every process that holds the keys of dir to wipe them: each does
// before its next signature, and within a second.
func LockAll(dir string) error {
	if err := keystore.CheckHome(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, wallet.LockName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a link to anywhere
		return coded.Setup("ask other processes to lock", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) { // another one asks the same
		return nil
	}
	if err != nil {
		return coded.Setup("ask other processes to lock", err)
	}
	_, err = f.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return coded.Setup("ask other processes to lock", err)
	}
	return nil
}
