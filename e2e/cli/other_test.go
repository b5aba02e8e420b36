//go:build !unix

package cli

func detach() {}

func become(string) {}
