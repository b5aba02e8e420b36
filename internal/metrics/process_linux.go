package metrics

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// used asks the system; a process that is closed to others (wallet.Harden) may look at itself.
func used() usage {
	u := usage{cpu: -1, resident: -1, openFDs: -1, mostOpen: -1}
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) == nil {
		u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	text, _ := os.ReadFile("/proc/self/statm")
	if fields := bytes.Fields(text); len(fields) > 1 {
		if pages, err := strconv.Atoi(string(fields[1])); err == nil {
			u.resident = pages * os.Getpagesize()
		}
	}
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.openFDs = len(list) - 1 // but the one by which they are read
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		u.mostOpen = int(min(limit.Cur, 1<<30)) // unlimited, too
	}
	return u
}
