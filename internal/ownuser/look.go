package ownuser

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

type Found struct {
	Installed bool   // its unit is there
	HomeOwner string // "": there is no home
	HomeMode  fs.FileMode
	Wallet    *bool // nil: who looks may not see
}

// Look looks for the service's parts below root, which is "" or another.
func Look(p Place, root string) (f Found, err error) {
	isThere := func(path string) (bool, error) {
		_, err := os.Lstat(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	f.Installed, err = isThere(p.Unit)
	if err != nil {
		return f, err
	}
	switch home, err := os.Lstat(filepath.Join(root, p.Home)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return f, err
	default:
		f.HomeOwner, f.HomeMode = ownerOf(home), home.Mode().Perm()
	}
	if has, err := isThere(filepath.Join(p.Home, "keystore.json")); err == nil {
		f.Wallet = &has
	}
	return f, nil
}

// RunsServices returns an error if this system's manager of services is not systemd.
func RunsServices() error {
	if _, err := os.Stat("/run/systemd/system"); err != nil { // sd_booted(3)
		return errors.New("this system was not started by systemd")
	}
	return nil
}
