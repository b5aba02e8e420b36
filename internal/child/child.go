// Package child starts other programs: MCP servers, the server behind the paywall, and this program
// again, to which it hands a secret.
//
// What must stay true: a program that is started has the variables that it was given and no others,
// and no descriptor that it was not given; and a secret goes only to a process of ours that has
// closed itself to its user's other programs before.
//
// The files: child.go (programs), trees.go and confine_linux.go (what is closed to them),
// ask.go (a program that is asked one thing), descriptors_unix.go (what came from outside), reexec_unix.go
// (this program again), closed_linux.go (who may look into a process).
package child

import (
	"errors"
	"fmt"
	"os/exec"
)

// Program is a program that is not ours.
type Program struct {
	Argv    []string // none: there is no program
	Env     []string // all of its environment, as "NAME=value"
	Sandbox Sandbox
}

// Sandbox says what a program is kept from, where the system can (Linux with Landlock): it and all
// that it starts cannot open what is in Closed, to read or to write, nor signal a process outside,
// and setuid programs give it no rights. It can connect to sockets in Closed, and change modes there (chmod).
type Sandbox struct {
	Closed   []string // files and directories; none: the program is not confined
	Required bool     // where it cannot be confined, it is not started
}

// Command is the program, ready to be started. Its error says why it cannot be.
func (p Program) Command() (*exec.Cmd, error) {
	if len(p.Argv) == 0 {
		return nil, errors.New("no program is named")
	}
	//nolint:gosec,noctx // the owner's own; it outlives the call
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Env = append([]string{}, p.Env...) // not nil, which would be all of ours
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	err := p.Confine(cmd)
	if err != nil {
		return nil, err
	}
	return cmd, nil
}

// Confine confines a command of this program that was not started yet. Its error says why it may not be
// started.
func (p Program) Confine(cmd *exec.Cmd) error {
	why := p.Unconfined()
	switch {
	case why == "":
		confine(cmd, p.Sandbox.Closed)
	case p.Sandbox.Required:
		return fmt.Errorf("%w: %s", ErrUnconfined, why)
	}
	return nil
}

// ErrUnconfined is why a program is not started that has to be confined.
var ErrUnconfined = errors.New("it cannot be confined")

// Unconfined says why the program would be started unconfined; "": it is confined.
func (p Program) Unconfined() string {
	if len(p.Sandbox.Closed) == 0 {
		return "its sandbox is turned off"
	}
	if why := Unsupported(); why != "" {
		return why
	}
	path, err := exec.LookPath(p.Argv[0])
	if err != nil {
		return "" // starting it says so
	}
	return whyNotConfinable(path, p.Sandbox.Closed)
}
