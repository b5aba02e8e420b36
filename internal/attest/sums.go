package attest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Sums are the SHA-256 of files by name, 64 digits in lower case each.
type Sums map[string]string

// Text is the file SHA256SUMS, as sha256sum -c reads it: by name.
func (s Sums) Text() []byte {
	var b strings.Builder
	for _, name := range s.names() {
		fmt.Fprintf(&b, "%s  %s\n", s[name], name)
	}
	return []byte(b.String())
}

func (s Sums) names() (list []string) {
	for name := range s {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

var errSums = errors.New("it is not a list of checksums as a release has it")

// readSums is the reverse of Text, and reads nothing else: no line twice, no other line end, no name
// that could lead out of a directory or be read in two ways, nothing behind the last line.
func readSums(text []byte) (Sums, error) {
	list := Sums{}
	for line := range strings.Lines(string(text)) {
		sum, name, two := strings.Cut(line, "  ")
		name, whole := strings.CutSuffix(name, "\n")
		digest, err := hex.DecodeString(sum)
		_, again := list[name]
		if !two || !whole || err != nil || len(digest) != 32 || again || !plainName(name) {
			return nil, errSums
		}
		list[name] = hex.EncodeToString(digest)
	}
	if len(list) == 0 || string(list.Text()) != string(text) {
		return nil, errSums
	}
	return list, nil
}

// nameLetters are those that mean the same to every shell and system.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./-_+"

// plainName reports whether a name stays in its directory and says what it seems to say.
func plainName(name string) bool {
	return fs.ValidPath(name) && name != "." &&
		!strings.ContainsFunc(name, func(c rune) bool { return !strings.ContainsRune(nameLetters, c) })
}
