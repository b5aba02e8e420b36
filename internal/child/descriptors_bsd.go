//go:build unix && !linux

package child

// KeepDescriptors keeps what was open when this program was started, beside its input and outputs,
// from the programs that it starts itself: `--passphrase-fd`'s above all. What Go opens is kept
// from them in any case.
func KeepDescriptors() { keepListed("/dev/fd") }
