//go:build unix

package cli

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// streams are what a command has: stdin, stdout, stderr, and the terminal where there is one and it is ours
// to read. done puts the terminal back as it was: a program that was killed while a passphrase was typed
// cannot.
func (p *Program) streams(stderr *os.File) (files []*os.File, done func()) {
	files = []*os.File{p.Stdin, p.Stdout, stderr}
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return files, func() {}
	}
	before, err := term.GetState(int(terminal.Fd()))
	if err != nil || !inForeground(terminal) {
		_ = terminal.Close()
		return files, func() {}
	}
	// the program that runs the command reads on while this one is stopped, and the shell would read, too
	signal.Ignore(unix.SIGTSTP)
	return append(files, terminal), func() {
		signal.Reset(unix.SIGTSTP)
		if inForeground(terminal) {
			_ = term.Restore(int(terminal.Fd()), before)
		}
		_ = terminal.Close()
	}
}

// inForeground reports whether the terminal is this program's at the moment: the system does not ask that of
// a program in another session.
func inForeground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
