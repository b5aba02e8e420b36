package ownuser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/ownfile"
)

// Apply carries the plan out. Below root, where it is not "", only files are written, and no command is run:
// for who makes a package, or an image of a system. It is written to nothing that others than root and the
// caller can change. said is called before each action.
func (p Plan) Apply(ctx context.Context, root string, said func(Action)) error {
	for _, a := range p {
		if root != "" && a.Run != nil {
			continue
		}
		said(a)
		if err := a.do(ctx, root); err != nil {
			return err
		}
	}
	return nil
}

func (a Action) do(ctx context.Context, root string) error {
	switch {
	case a.Run != nil:
		cmd := exec.CommandContext(ctx, a.Run[0], a.Run[1:]...) //nolint:gosec // the plan's own
		cmd.Env = environ.Child()
		out, err := cmd.CombinedOutput()
		if err != nil && !a.MayFail {
			return fmt.Errorf("%s: %w: %s", strings.Join(a.Run, " "), err, bytes.TrimSpace(out))
		}
		return nil
	case a.Remove != "":
		path := filepath.Join(root, a.Remove)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	path := filepath.Join(root, a.Write.Path)
	//nolint:gosec // anybody may see what is there
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if root == "" {
		if err := checkPath(path, "/"); err != nil {
			return err
		}
	}
	return a.Write.write(path)
}

// write replaces what is at path at once, or leaves it where it is the same.
func (f *File) write(path string) error {
	text := []byte(f.Text)
	if f.From != "" {
		var err error
		text, err = os.ReadFile(f.From)
		if err != nil {
			return err
		}
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return os.Chmod(path, f.Mode)
	}
	return ownfile.Replace(path, f.Mode, func(out io.Writer) error {
		_, err := out.Write(text)
		return err
	})
}

// checkPath refuses a file that somebody else could put another in place of: it, and every directory above it
// up to top, is root's or the caller's, and others do not write there.
func checkPath(path, top string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if problem := ownfile.Writers(info); problem != "" {
			return fmt.Errorf("%s is not safe there: %s %s; correct it with: chmod go-w %s", path, dir,
				problem, dir)
		}
		if dir == top || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is there, and no regular file", path)
	}
	if problem := ownfile.Writers(info); problem != "" {
		return fmt.Errorf("%s %s; remove it, or correct it with: chmod go-w %s", path, problem, path)
	}
	return nil
}
