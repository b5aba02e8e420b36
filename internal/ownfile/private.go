package ownfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
)

var (
	ErrTooLarge   = errors.New("larger than it may be")
	ErrSecondName = errors.New("the file has a second name (hard link)")
)

// ReadPrivate reads a regular file of at most limit bytes that only its owner, the caller, can reach: no
// symlink, no FIFO or device (neither of which is waited for), no second name. isOurs says whose the file
// may be: [CheckOwner], or less strict.
func ReadPrivate(path string, limit int, isOurs func(path string, info fs.FileInfo) error) ([]byte, error) {
	f, err := OpenNoFollow(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := statRegular(f)
	if err != nil {
		return nil, err
	}
	if err := isOurs(path, info); err != nil {
		return nil, err
	}
	if linkCount(info) > 1 {
		return nil, &Refusal{Path: path, Problem: "must have one name",
			Remedy: "find the other with: find DIR -samefile " + shellQuote(path), Cause: ErrSecondName}
	}
	return ReadAll(f, limit)
}

// ReadAll reads to the end, or returns [ErrTooLarge]. It reads into one buffer: io.ReadAll would leave copies
// of a secret in the ones it outgrew.
func ReadAll(r io.Reader, limit int) ([]byte, error) {
	data := make([]byte, limit+1)
	n, err := io.ReadFull(r, data)
	switch {
	case err == nil:
		clear(data)
		return nil, ErrTooLarge
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return data[:n], nil
	}
	clear(data)
	return nil, err
}

// shellQuote makes path one word for a shell.
func shellQuote(path string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@"
	if path != "" && strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// TrimLine drops one line end, \n or \r\n.
func TrimLine(p []byte) []byte {
	if rest, ok := bytes.CutSuffix(p, []byte("\n")); ok {
		return bytes.TrimSuffix(rest, []byte("\r"))
	}
	return p
}
