//go:build unix

package pgtest

import "syscall"

const pause = syscall.SIGSTOP
