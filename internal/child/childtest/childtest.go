// Package childtest writes programs for the tests of what starts them, and reads what became of them.
//
// What must stay true: no test of it fails with "text file busy". A file that some process has open for
// writing cannot be executed, and every process that is started while a program is written has it open until
// it is another program itself. So a script is an argument where it can be (Script), and where it has to be
// a file, nothing is started meanwhile (Write).
package childtest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Env is all that a script needs of an environment.
const Env = "PATH=/usr/bin:/bin"

// Script is a command that is a shell's script. $0 is dir, where it may note what it is asked (Read); $1 and
// so on is what the caller adds.
func Script(dir, text string) []string { return []string{"/bin/sh", "-c", text, dir} }

// Write makes path a program that is a shell's script, whether there was one or not: at no time is it half
// of one.
func Write(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock() // see the package
	//nolint:gosec // it is to be started
	err := os.WriteFile(path+".new", []byte("#!/bin/sh\n"+text+"\n"), 0o700)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	require.NoError(t, os.Rename(path+".new", path))
}

// Read is what a script noted.
func Read(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(text)
}
