package ownuser

import (
	"cmp"
	"errors"
	"io/fs"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	"x402-wallet/internal/socket"
)

// ownerOf is the name of a file's owner, or the SID where nobody has it. Who may do what with it is said
// elsewhere, by its access list.
func ownerOf(path string, _ fs.FileInfo) string {
	found, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return "?"
	}
	owner, _, err := found.Owner()
	if err != nil {
		return "?"
	}
	user := socket.User(owner.String())
	return cmp.Or(user.Login(), string(user))
}

// hasService reports whether the system knows the service.
func hasService() (bool, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE,
		`SYSTEM\CurrentControlSet\Services\`+socket.ServiceName, registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, key.Close()
}
