//go:build unix

package ownuser

import (
	"io/fs"
	"os/user"
	"strconv"
	"syscall"
)

// ownerOf is the name of a file's owner, or the number where nobody has it.
func ownerOf(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "?"
	}
	uid := strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}
