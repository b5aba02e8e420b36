package keystore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet/internal/coded"
)

const (
	// Name is the file's name in the home.
	Name = "keystore.json"
	// TempPrefix begins the names of files that are to become one.
	TempPrefix = Name + ".tmp-"
)

// ErrBusy says that another process is writing a keystore.
var ErrBusy = errors.New("another process is writing a keystore here")

// Read reads and parses dir/keystore.json after checking who could have written to either.
func Read(dir string) (ks *File, data []byte, err error) {
	if err := CheckHome(dir); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, Name)
	data, err = coded.ReadFile(path, MaxSize)
	if errors.Is(err, ownfile.ErrSecondName) && RemoveStaleTemps(dir) {
		// A creator that ended, or still is, between link and remove. Once is enough:
		// it is microseconds from one to the other.
		time.Sleep(20 * time.Millisecond)
		data, err = coded.ReadFile(path, MaxSize)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, NotFound(dir)
	case errors.Is(err, ownfile.ErrTooLarge):
		return nil, nil, coded.Corrupt("it is larger than %d bytes", MaxSize)
	case errors.Is(err, coded.Permissions):
		return nil, nil, err
	case err != nil:
		return nil, nil, coded.Denied(path, "cannot be read",
			"its disk, or this machine's limit of open files, "+
				"did not let it be read; the file was not touched", err)
	}
	ks, err = Parse(data)
	return ks, data, err
}

func NotFound(dir string) *coded.Error {
	return &coded.Error{As: coded.NotFound, Msg: "there is no wallet in " + dir,
		Advice: "the owner makes it in a terminal: x402-wallet init"}
}

// CheckHome says whether dir is a directory that only its owner, the caller, can enter.
func CheckHome(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return NotFound(dir)
	case err != nil:
		return coded.Denied(dir, "cannot be looked at", "look at the permissions of the directories above it",
			err)
	case !info.IsDir():
		return coded.Denied(dir, "is not a directory", "set X402_WALLET_HOME to the wallet's directory", nil)
	}
	return coded.AsDenied(ownfile.CheckOwner(dir, info))
}

// RemoveStaleTemps removes what creators that ended early have left, and reports whether there
// was any temporary file. They are encrypted, complete or not.
func RemoveStaleTemps(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	found := false
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), TempPrefix) {
			found = true
			removeStale(filepath.Join(dir, e.Name()))
		}
	}
	return found
}
