//go:build unix

package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// open opens for reading without waiting: opening a FIFO would otherwise hang for ever.
func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) }

// OpenNoFollow does the same, and refuses a symlink as the last element.
func OpenNoFollow(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &Refusal{Path: path, Problem: "is a symbolic link", Remedy: putItself}
	case errors.Is(err, unix.ENXIO): // a socket
		return nil, notRegular(path)
	case errors.Is(err, fs.ErrPermission):
		return nil, &Refusal{Path: path, Problem: "cannot be read",
			Remedy: "it must be yours, with mode 0600", Cause: err}
	}
	return f, err
}

// Writers says what is wrong with who may write, or "". Root's files are as good as our own: root needs no
// permission.
func Writers(info fs.FileInfo) string {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Sprintf("can be written by others (mode %04o)", mode)
	}
	return Stranger(info)
}

// Stranger says whose a file or link is, if it is neither ours nor root's, or "".
func Stranger(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Sprintf("belongs to user %d, not to you", stat.Uid)
	}
	return ""
}

// CheckOwner wants the caller to own the file or directory, and nobody else to have any permission on it.
func CheckOwner(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &Refusal{Path: path, Problem: "has no owner to check"}
	}
	if me := os.Geteuid(); int(stat.Uid) != me {
		return &Refusal{Path: path,
			Problem: fmt.Sprintf("belongs to user %d, not to you (user %d)", stat.Uid, me),
			Remedy:  fmt.Sprintf("run: sudo chown %d %s", me, shellQuote(path))}
	}
	mode := info.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	want := "600"
	if info.IsDir() {
		want = "700"
	}
	return &Refusal{Path: path,
		Problem: fmt.Sprintf("is open to other users (mode %04o, must be 0%s)", mode, want),
		Remedy:  fmt.Sprintf("run: chmod %s %s", want, shellQuote(path))}
}

// linkCount is the number of hard links.
func linkCount(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink) //nolint:unconvert // its type differs between systems
	}
	return 0
}

// SyncDir makes the names in a directory durable. Some file systems cannot, and say so.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
