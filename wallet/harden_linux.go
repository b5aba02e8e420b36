package wallet

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Harden makes the process not dumpable and its core file size zero, so that
// neither a debugger or /proc/PID/{mem,environ} reader of the same user nor a
// core file sees a key. main calls it first, before anything is unlocked; a
// program started later from this process is not affected (exec resets it).
// After an error no source gives a passphrase.
func Harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return notHardened(fmt.Errorf("make the process not dumpable: %w", err))
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return notHardened(fmt.Errorf("forbid core files: %w", err))
	}
	return nil
}
