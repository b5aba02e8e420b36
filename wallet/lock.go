package wallet

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// lockName is a file beside the keystore: whoever holds keys wipes them when
	// it changes. Its content has no meaning; anybody who can write it may lock.
	lockName = "locked"
	// lockPollInterval is how often an unlocked wallet looks at it, besides before each
	// signature.
	lockPollInterval = time.Second
)

// LockAll asks every process that holds the keys of dir to wipe them: each does
// before its next signature, and within a second.
func LockAll(dir string) error {
	if err := checkHome(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, lockName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a link to anywhere
		return setup("ask other processes to lock", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) { // another one asks the same
		return nil
	}
	if err != nil {
		return setup("ask other processes to lock", err)
	}
	_, err = f.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return setup("ask other processes to lock", err)
	}
	return nil
}

// readLockToken is the content of that file; it changes with every [LockAll].
func (w *Wallet) readLockToken() string {
	text, err := readOwned(filepath.Join(w.dir, lockName), 64)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}
