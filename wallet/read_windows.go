package wallet

import (
	"io/fs"
	"os"
)

// openNoFollow opens path for reading unless it is a link or a device.
func openNoFollow(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, denied(path, "is not a regular file", "put the file itself there", nil)
	}
	return os.Open(path)
}

// checkOwner has nothing to check: there are no mode bits, and the user's
// profile, where the home is, is closed to others by its access list.
func checkOwner(string, fs.FileInfo) error { return nil }

func checkCredential(string, fs.FileInfo) error { return nil }

func linkCount(fs.FileInfo) uint64 { return 1 }
