package ownuser

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"

	"x402-wallet/internal/socket"
)

// administrators are the group that owns what they make.
const administrators socket.User = "S-1-5-32-544"

func systemFolders() folders {
	f := usualFolders
	for id, path := range map[*windows.KNOWNFOLDERID]*string{windows.FOLDERID_ProgramData: &f.data,
		windows.FOLDERID_ProgramFiles: &f.programs, windows.FOLDERID_System: &f.system} {
		if found, err := windows.KnownFolderPath(id, windows.KF_FLAG_DEFAULT); err == nil {
			*path = found
		}
	}
	return f
}

// make makes the directory with its access at once, so that nobody comes before it. In ProgramData anybody
// may make directories: one that is there is taken only from an administrator or the system.
func (d *Dir) make() error {
	sd, err := windows.SecurityDescriptorFromString(d.Access)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Path, err)
	}
	path, err := windows.UTF16PtrFromString(d.Path)
	if err != nil {
		return err
	}
	with := windows.SecurityAttributes{SecurityDescriptor: sd}
	with.Length = uint32(unsafe.Sizeof(with))
	err = windows.CreateDirectory(path, &with)
	if errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		err = d.take(path, sd)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", d.Path, err)
	}
	return nil
}

// take gives a directory that is there its access. All is asked of the open directory, so that no other can
// be put in its place meanwhile.
func (d *Dir) take(path *uint16, sd *windows.SECURITY_DESCRIPTOR) error {
	const rights = windows.READ_CONTROL | windows.WRITE_DAC | windows.FILE_READ_ATTRIBUTES
	const how = windows.FILE_FLAG_BACKUP_SEMANTICS | windows.FILE_FLAG_OPEN_REPARSE_POINT
	dir, err := windows.CreateFile(path, rights, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, nil,
		windows.OPEN_EXISTING, how, 0)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(dir) }()
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(dir, &info); err != nil {
		return err
	}
	const kinds = windows.FILE_ATTRIBUTE_DIRECTORY | windows.FILE_ATTRIBUTE_REPARSE_POINT
	if info.FileAttributes&kinds != windows.FILE_ATTRIBUTE_DIRECTORY {
		return errors.New("it is there, and no plain directory")
	}
	found, err := windows.GetSecurityInfo(dir, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return err
	}
	owner, _, err := found.Owner()
	if err != nil {
		return err
	}
	self, err := socket.Self()
	if err != nil {
		return err
	}
	switch is := socket.User(owner.String()); is {
	case self, socket.Root, administrators:
	default:
		return fmt.Errorf("it is there, and belongs to %s: look what it is, and remove it", is)
	}
	acl, _, err := sd.DACL()
	if err != nil {
		return err
	}
	return windows.SetSecurityInfo(dir, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, acl, nil)
}
