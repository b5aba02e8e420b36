//go:build !linux

package pgtest

import (
	"errors"
	"os"
	"os/exec"
)

type owner struct{}

func serverUser() (*owner, error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("PostgreSQL does not run as root: run the tests as somebody else")
	}
	return nil, nil
}

func (o *owner) own(string) error { return nil }

func runAs(*exec.Cmd, *owner) {}

// endWithUs does nothing: only Linux tells a child that its parent died.
func endWithUs(*exec.Cmd) {}
