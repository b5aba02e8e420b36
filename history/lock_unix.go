//go:build unix

package history

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock tries to take the file's exclusive lock without waiting.
func lock(f *os.File) (held bool, err error) { return try(f, unix.LOCK_EX) }

// share does the same with a lock that many may hold, while nobody holds the exclusive one.
func share(f *os.File) (held bool, err error) { return try(f, unix.LOCK_SH) }

func try(f *os.File, how int) (held bool, err error) {
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
