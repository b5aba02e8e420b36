//go:build !windows

package ownuser

func systemFolders() folders { return usualFolders }

func (d *Dir) make() error { return ErrUnsupported }
