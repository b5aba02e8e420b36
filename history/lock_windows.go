package history

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lock tries to take the file's exclusive lock without waiting.
func lock(f *os.File) (held bool, err error) { return try(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// share does the same with a lock that many may hold, while nobody holds the exclusive one.
func share(f *os.File) (held bool, err error) { return try(f, 0) }

func try(f *os.File, how uint32) (held bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}
