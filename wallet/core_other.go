//go:build !linux

package wallet

func inCoreFiles([]byte, bool) {}
