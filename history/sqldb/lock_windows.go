package sqldb

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// LockFile tries to take the file's exclusive lock without waiting.
func LockFile(f *os.File) (held bool, err error) { return tryFile(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// ShareFile does the same with a lock that many may hold, while nobody holds the exclusive one.
func ShareFile(f *os.File) (held bool, err error) { return tryFile(f, 0) }

func tryFile(f *os.File, how uint32) (held bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func unlockFile(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}
