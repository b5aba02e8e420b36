package child

import (
	"math"

	"golang.org/x/sys/unix"
)

// KeepDescriptors keeps what was open when this program was started, beside its input and outputs,
// from the programs that it starts itself: `--passphrase-fd`'s above all. What Go opens is kept
// from them in any case.
func KeepDescriptors() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil { // before Linux 5.11
		keepListed("/proc/self/fd")
	}
}
