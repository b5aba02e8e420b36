//go:build !windows

package cli

func systemProgram(string) string { return "" }
