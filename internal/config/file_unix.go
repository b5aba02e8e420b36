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
	return belongs(info)
}

// replaceable says how others could exchange what is in a directory, or "". Where it is sticky (as /tmp is,
// and secrets that Kubernetes mounts) they cannot exchange what is ours.
func replaceable(dir os.FileInfo) string {
	if dir.Mode()&os.ModeSticky != 0 {
		return belongs(dir)
	}
	return Ownership(dir)
}

// belongs says whose a file or link is, if it is neither ours nor root's, or "".
func belongs(info os.FileInfo) string {
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
