//go:build !unix

package mcpconn

import "os/exec"

func setSession(*exec.Cmd) {}

func terminateGroup(*exec.Cmd) {} // there is no SIGTERM

func killGroup(c *exec.Cmd) { _ = c.Process.Kill() }
