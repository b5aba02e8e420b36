package cli

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// systemProgram is the full path of a program of the system; "": there is none.
func systemProgram(name string) string {
	dir, err := windows.GetSystemDirectory()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, name)
}

// isAdministrator reports whether this process may change what the system runs.
func isAdministrator() bool { return windows.GetCurrentProcessToken().IsElevated() }
