//go:build !unix && !windows

package ownuser

import "io/fs"

func ownerOf(fs.FileInfo) string { return "?" }

func hasService() (bool, error) { return false, nil }
