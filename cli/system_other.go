//go:build !windows

package cli

import "os"

func systemProgram(string) string { return "" }

// isAdministrator reports whether this process may change what the system runs.
func isAdministrator() bool { return os.Geteuid() == 0 }
