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
