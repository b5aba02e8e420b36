//go:build !windows

package app

// managed is nil: other systems' managers speak by signals and descriptors.
func managed([]string) serviceManager { return nil }
