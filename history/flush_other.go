//go:build !linux

package history

import "os"

// flushData puts what is in a file on the disk.
func flushData(file *os.File) error { return file.Sync() }
