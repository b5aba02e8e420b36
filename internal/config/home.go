package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"x402-wallet/internal/ownfile"
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
	if problem := ownfile.Writers(info); problem != "" {
		return fmt.Errorf("%s %s; correct it with: chmod 700 %s", home, problem, home)
	}
	return nil
}

// Load reads <home>/config.toml. It must be a regular file of ours that nobody else can write.
// Where it does not exist the error is fs.ErrNotExist.
func Load(home string) (*Config, error) {
	path := filepath.Join(home, FileName)
	data, mode, err := ownfile.Read(path, MaxFile)
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
	data, mode, err := ownfile.Read(path, 16<<10)
	if err != nil {
		return "", err
	}
	if runtime.GOOS != "windows" && mode&0o077 != 0 {
		return "", fmt.Errorf("%s holds a secret and can be read by others; correct it with: chmod 600 %s",
			path, path)
	}
	return Secret(data), nil
}

// ReadTrusted is ownfile.Read for a file of which all that follows depends, such as a secret that is mounted:
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
			data, _, err := ownfile.Read(path, limit)
			return data, err
		}
		if problem := ownfile.Stranger(info); problem != "" {
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

// replaceable says how others could exchange what is in a directory, or "". Where it is sticky (as /tmp is,
// and secrets that Kubernetes mounts) they cannot exchange what is ours.
func replaceable(dir os.FileInfo) string {
	if dir.Mode()&os.ModeSticky != 0 {
		return ownfile.Stranger(dir)
	}
	return ownfile.Writers(dir)
}
