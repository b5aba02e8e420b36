// Package ownfile reads files that nobody but their owner can change, or even read, and replaces files at
// once or not at all.
package ownfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Refusal says why a file is not read, and what its owner does about it.
type Refusal struct {
	Path, Problem string
	Remedy        string // may be empty
	Cause         error  // may be nil
}

func (r *Refusal) Error() string {
	if r.Cause != nil {
		return r.Path + " " + r.Problem + ": " + r.Cause.Error()
	}
	return r.Path + " " + r.Problem
}

func (r *Refusal) Unwrap() error { return r.Cause }

const putItself = "put the file itself there"

func notRegular(path string) error {
	return &Refusal{Path: path, Problem: "is not a regular file", Remedy: putItself}
}

// statRegular describes an open file. What is checked is what was opened, not what has the name.
func statRegular(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(f.Name())
	}
	return info, err
}

// Read reads a regular file that nobody but the caller and root can write. Others may read it, as mode says.
// Where there is none the error is fs.ErrNotExist.
func Read(path string, limit int64) (data []byte, mode fs.FileMode, err error) {
	f, err := open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := statRegular(f)
	if err != nil {
		return nil, 0, err
	}
	if problem := Writers(info); problem != "" {
		return nil, 0, fmt.Errorf("%s %s; correct it with: chmod 600 %s", path, problem, path)
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, 0, err
	}
	if int64(len(data)) > limit {
		return nil, 0, fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return data, info.Mode(), nil
}

// Write replaces a file of the owner's alone at once or not at all, as Replace does.
func Write(path string, data []byte) error {
	return Replace(path, 0o600, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// Replace replaces a file at once or not at all by what write writes, 0600 from its first byte until it is
// whole: temp file, fsync, rename, fsync of the directory. An error of write leaves what was there.
func Replace(path string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp") // O_EXCL and 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	err = write(temp)
	if err == nil && mode != 0o600 {
		err = temp.Chmod(mode)
	}
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err = os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}
