package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"x402-wallet/x402"
)

// FileName is the rules' file in the wallet's home.
const FileName = "config.toml"

// MakeHome creates the directory, 0700. One that exists must be ours and not writable by others.
func MakeHome(home string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("create the wallet's home: %w", err)
	}
	info, err := os.Stat(home)
	if err != nil {
		return err
	}
	if problem := Ownership(info); problem != "" {
		return fmt.Errorf("%s %s; correct it with: chmod 700 %s", home, problem, home)
	}
	return nil
}

// Load reads <home>/config.toml. It must be a regular file of ours that nobody else can write.
// Where it does not exist the error is fs.ErrNotExist.
func Load(home string) (*Config, error) {
	path := filepath.Join(home, FileName)
	data, mode, err := readOwned(path, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	if err != nil {
		return nil, &Error{Msg: err.Error()}
	}
	c, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && mode&0o044 != 0 {
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("%s can be read by other users of this machine; chmod 600 %s", path, path))
	}
	return c, nil
}

// Missing says of a home that its rules are gone: POLICY_UNSEALED.
func Missing(home string) error {
	return x402.Errorf(x402.PolicyUnsealed, "the owner's rules %s are missing",
		filepath.Join(home, FileName)).
		WithHint("the person restores config.toml from a backup; nothing is paid without rules")
}

// ReadSecretFile reads a small owner-only file, such as header_file of a facilitator. Others may
// not even read it.
func ReadSecretFile(path string) (Secret, error) {
	data, mode, err := readOwned(path, 16<<10)
	if err != nil {
		return "", err
	}
	if runtime.GOOS != "windows" && mode&0o077 != 0 {
		return "", fmt.Errorf("%s holds a secret and can be read by others; correct it with: chmod 600 %s",
			path, path)
	}
	return Secret(data), nil
}

// ReadFile reads a small file of the home that only its owner can write. Where it does not exist
// the error is fs.ErrNotExist.
func ReadFile(path string, limit int64) ([]byte, error) {
	data, _, err := readOwned(path, limit)
	return data, err
}

// ReadTrusted is ReadFile for a file of which all that follows depends, such as a secret that is mounted:
// neither the directory that it is in nor a symbolic link on the way to it may be anybody's but ours or
// root's either.
func ReadTrusted(path string, limit int64) ([]byte, error) {
	const most = 8 // links one behind the other; Kubernetes has two
	for range most {
		dir, err := os.Stat(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		if problem := replaceable(dir); problem != "" {
			return nil, fmt.Errorf("%s %s, and so can what is in it", filepath.Dir(path), problem)
		}
		info, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return ReadFile(path, limit)
		}
		if problem := belongs(info); problem != "" {
			return nil, fmt.Errorf("%s %s", path, problem)
		}
		target, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return nil, fmt.Errorf("%s is a link to a link, and so on", path)
}

// readOwned reads a file that only its owner can write. What is checked is what was opened, not
// what has the name.
func readOwned(path string, limit int64) ([]byte, os.FileMode, error) {
	f, err := openPlain(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	if problem := Ownership(info); problem != "" {
		return nil, 0, fmt.Errorf("%s %s; correct it with: chmod 600 %s", path, problem, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, 0, err
	}
	if int64(len(data)) > limit {
		return nil, 0, fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return data, info.Mode(), nil
}

// WriteFile replaces a file of the home at once or not at all, as WriteThrough does.
func WriteFile(path string, data []byte) error {
	return WriteThrough(path, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// WriteThrough is Replace for a file of the owner's alone, 0600.
func WriteThrough(path string, write func(io.Writer) error) error { return Replace(path, 0o600, write) }

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
	return syncDir(filepath.Dir(path))
}
