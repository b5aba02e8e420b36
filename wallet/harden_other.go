//go:build !linux

package wallet

// Harden does nothing here: only Linux has the switch that hides a process from
// debuggers of its own user.
func Harden() error { return nil }
