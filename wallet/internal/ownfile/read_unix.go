//go:build unix

package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"x402-wallet/wallet/internal/coded"
)

// OpenNoFollow opens path for reading. It refuses a symlink as the last element
// and does not wait for the writer of a FIFO.
func OpenNoFollow(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, coded.Denied(path, "is a symbolic link", "put the file itself there", nil)
	case errors.Is(err, unix.ENXIO): // a socket
		return nil, coded.Denied(path, "is not a regular file", "put the file itself there", nil)
	case errors.Is(err, fs.ErrPermission):
		return nil, coded.Denied(path, "cannot be read", "it must be yours, with mode 0600", err)
	}
	return f, err
}

// CheckOwner wants the caller to own the file or directory, and nobody else to
// have any permission on it.
func CheckOwner(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return coded.Denied(path, "has no owner to check", "", nil)
	}
	if me := os.Geteuid(); int(stat.Uid) != me {
		return coded.Denied(path, fmt.Sprintf("belongs to user %d, not to you (user %d)", stat.Uid, me),
			fmt.Sprintf("run: sudo chown %d %s", me, ShellQuote(path)), nil)
	}
	mode := info.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	want := "600"
	if info.IsDir() {
		want = "700"
	}
	return coded.Denied(path, fmt.Sprintf("is open to other users (mode %04o, must be 0%s)", mode, want),
		fmt.Sprintf("run: chmod %s %s", want, ShellQuote(path)), nil)
}

// CheckCredential takes root's files besides, which who it is for reads by an access list: what looks like
// its group's permission is the list's mask (acl(5)).
func CheckCredential(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid == 0 && stat.Gid == 0 && info.Mode().Perm()&0o037 == 0 {
		return nil
	}
	return CheckOwner(path, info)
}

// linkCount is the number of hard links.
func linkCount(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink) //nolint:unconvert // its type differs between systems
	}
	return 0
}
