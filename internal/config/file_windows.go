package config

import "os"

func openPlain(path string) (*os.File, error) { return os.Open(path) }

// Ownership is not told by mode bits on Windows; the user's own configuration directory is private
// there by its ACL.
func Ownership(os.FileInfo) string { return "" }

func replaceable(os.FileInfo) string { return "" }

func belongs(os.FileInfo) string { return "" }

// syncDir has no counterpart: a directory cannot be flushed, and NTFS journals the rename.
func syncDir(string) error { return nil }
