//go:build !unix

package cli

import "syscall"

func background() *syscall.SysProcAttr { return nil }
