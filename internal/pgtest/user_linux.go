package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// owner is who runs a server where the tests run as root, which PostgreSQL refuses.
type owner struct{ uid, gid int }

func serverUser() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUser := strconv.Atoi(u.Uid)
		gid, errGroup := strconv.Atoi(u.Gid)
		return &owner{uid, gid}, errors.Join(errUser, errGroup)
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

func (o *owner) own(path string) error {
	if o == nil {
		return nil
	}
	return os.Chown(path, o.uid, o.gid)
}

func runAs(cmd *exec.Cmd, o *owner) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if o != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
	}
}

// endWithUs ends a postmaster and its children when the thread that started it dies: when the tests are
// killed.
func endWithUs(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT }
