package socket

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

const (
	pipePrefix = `\\.\pipe\`
	// pipeAccess is what a client needs and no more: to read and write, but not FILE_CREATE_PIPE_INSTANCE,
	// by which it could be a server of the same pipe. GENERIC_WRITE would have that in it.
	pipeAccess = 0x0012019b
)

// pipeName is the pipe that stands for a path: the path itself where it is a pipe's, else one that is derived
// from it. Windows tells no small letters from capitals in paths.
func pipeName(path string) string {
	if len(path) > len(pipePrefix) && strings.EqualFold(path[:len(pipePrefix)], pipePrefix) {
		return path
	}
	sum := sha256.Sum256([]byte(strings.ToLower(path)))
	return pipePrefix + "x402-wallet-" + hex.EncodeToString(sum[:16])
}

// descriptor is the access to a pipe of owner's, as SDDL: all for it, the system and administrators; where
// mode lets others write, reading and writing for whoever logged on at this machine. Nobody comes in from the
// network. The owner is named because the client trusts it, and an elevated process would have the pipe
// belong to all administrators.
func descriptor(owner User, mode fs.FileMode) string {
	sddl := fmt.Sprintf("O:%[1]sG:%[1]sD:P(D;;GA;;;NU)(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;%[1]s)", owner)
	if mode&0o002 != 0 {
		sddl += fmt.Sprintf("(A;;%#x;;;AU)", pipeAccess)
	}
	return sddl
}

// mayServe reports whether a client of self's tells the owner of a pipe anything: a pipe's name is taken by
// whoever is first, so it may be anybody's.
func mayServe(owner, self User) bool {
	return owner == self || owner == Root
}
