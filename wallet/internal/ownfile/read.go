// Package ownfile reads files that only their owner, the caller, can reach.
package ownfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"

	"x402-wallet/wallet/internal/coded"
)

var (
	ErrTooLarge   = errors.New("larger than it may be")
	ErrSecondName = errors.New("the file has a second name (hard link)")
)

// Read reads a regular file of at most limit bytes that only its owner, the caller, can reach:
// no symlink, no FIFO or device (neither of which is waited for), no second name, no permission bit
// of group or others. The checks are made on the open file. Windows has no such bits; there the
// first half holds.
func Read(path string, limit int) ([]byte, error) { return ReadIf(path, limit, CheckOwner) }

// ReadIf is readOwned by another rule of whose the file may be.
func ReadIf(path string, limit int, isOurs func(path string, info fs.FileInfo) error) ([]byte, error) {
	f, err := OpenNoFollow(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, coded.Denied(path, "is not a regular file", "put the file itself there", nil)
	}
	if err := isOurs(path, info); err != nil {
		return nil, err
	}
	if linkCount(info) > 1 {
		hint := "find the other with: find DIR -samefile " + ShellQuote(path)
		return nil, coded.Denied(path, "must have one name", hint, ErrSecondName)
	}
	return ReadAll(f, limit)
}

// ReadAll reads to the end, or returns errTooLarge. It reads into one buffer:
// io.ReadAll would leave copies of a secret in the ones it outgrew.
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

// ShellQuote makes path one word for a shell.
func ShellQuote(path string) string {
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
