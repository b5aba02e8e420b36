package guarded

import "golang.org/x/sys/unix"

// inCoreFiles says whether the pages that b lies on belong into a core file. It is a second bar:
// wallet.Harden forbids core files. The advice starts at a whole page, where a secret lies wherever pages
// have 4 or 8 KiB; elsewhere it is not taken.
func inCoreFiles(b []byte, yes bool) {
	advice := unix.MADV_DONTDUMP
	if yes {
		advice = unix.MADV_DODUMP
	}
	_ = unix.Madvise(b, advice)
}
