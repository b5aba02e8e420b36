//go:build unix

package config

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openPlain opens for reading without waiting: opening a FIFO would otherwise hang for ever.
func openPlain(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC,
		0) //nolint:gosec // the owner's own path
}

// Ownership says what is wrong with who may write, or "". Root's files are as good as our own: root
// needs no permission.
func Ownership(info os.FileInfo) string {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Sprintf("can be written by others (mode %04o)", mode)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Sprintf("belongs to user %d, not to you", stat.Uid)
	}
	return ""
}

// syncDir makes a rename durable. Some file systems refuse to sync a directory; then there is
// nothing more to do.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the owner's own path
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
