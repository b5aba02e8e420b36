package socket

import (
	"crypto/sha1" //nolint:gosec // by which Windows names the users of services
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf16"
)

const (
	pipePrefix = `\\.\pipe\`
	// ServicePipe is the pipe of the wallet's service on Windows.
	ServicePipe = pipePrefix + ServiceName
	// ServiceName is the name of that service, and of its user.
	ServiceName = "x402-wallet"
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
	return ServicePipe + "-" + hex.EncodeToString(sum[:16])
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

// ServiceUser is the virtual account of a Windows service, NT SERVICE\name: its SID is made of the SHA-1 of
// the name in capitals.
func ServiceUser(name string) User {
	var text []byte
	for _, unit := range utf16.Encode([]rune(strings.ToUpper(name))) {
		text = binary.LittleEndian.AppendUint16(text, unit)
	}
	sum := sha1.Sum(text) //nolint:gosec // as above
	sid := "S-1-5-80"
	for part := sum[:]; len(part) > 0; part = part[4:] {
		sid += fmt.Sprintf("-%d", binary.LittleEndian.Uint32(part))
	}
	return User(sid)
}

// mayServe reports whether a client of self's tells the owner of a pipe anything: a pipe's name is taken by
// whoever is first, so it may be anybody's.
func mayServe(owner, self User) bool {
	return owner == self || owner == Root || owner == ServiceUser(ServiceName)
}
