//go:build !windows

package sqldb

import (
	"errors"
	"os"
)

// SyncDirectory makes the names in a directory durable.
func SyncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
