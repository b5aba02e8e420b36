package ownuser

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/windows/registry"

	"x402-wallet/internal/socket"
)

// ownerOf tells nothing: a directory's access says who may do what there, not its owner.
func ownerOf(fs.FileInfo) string { return "?" }

// hasService reports whether the system knows the service.
func hasService() (bool, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SYSTEM\CurrentControlSet\Services\`+socket.ServiceName,
		registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, key.Close()
}
