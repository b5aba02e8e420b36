//go:build unix

package sqldb

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// LockFile tries to take the file's exclusive lock without waiting.
func LockFile(f *os.File) (held bool, err error) { return tryFile(f, unix.LOCK_EX) }

// ShareFile does the same with a lock that many may hold, while nobody holds the exclusive one.
func ShareFile(f *os.File) (held bool, err error) { return tryFile(f, unix.LOCK_SH) }

func tryFile(f *os.File, how int) (held bool, err error) {
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func unlockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
