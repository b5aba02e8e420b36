//go:build unix

package cli

import "syscall"

// background makes a process that its terminal's end does not end.
func background() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
