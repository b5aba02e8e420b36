//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// ownGroup has a program lead a process group of its own, which can be ended as one.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
