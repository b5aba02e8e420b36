package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"x402-wallet/e2e/testworld"
)

// target is what an attacker knows: everything but the passphrase and others' tokens.
type target struct {
	Home, Socket string
	Files        []string // of the home, by name
	Older        string   // a directory with the home's files as they were earlier
	Own          string   // a directory of the attacker's
	Processes    []int
}

var errNothing = errors.New("nothing was to be had")

// attack tries everything that a program of this user can do to a service of another one, and prints what
// each attempt came to: "" is that it worked. What destroys comes after what looks.
func attack(file string) {
	runtime.LockOSThread() // a tracer is a thread
	var t target
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		panic(err)
	}
	came := map[string]string{}
	try := func(what string, err error) {
		came[what] = ""
		if err != nil {
			came[what] = err.Error()
		}
	}
	for _, pid := range t.Processes {
		t.attackProcess(pid, try)
	}
	t.attackFiles(try)
	t.attackSockets(try)
	for _, pid := range t.Processes {
		try(fmt.Sprint("stop ", pid), unix.Kill(pid, unix.SIGSTOP))
		_ = unix.Kill(pid, unix.SIGCONT)
		try(fmt.Sprint("end ", pid), unix.Kill(pid, unix.SIGTERM))
		try(fmt.Sprint("kill ", pid), unix.Kill(pid, 0))
	}
	_ = json.NewEncoder(os.Stdout).Encode(came)
}

// seize is a program that the service starts, which would take the place of its socket. It writes what each
// attempt came to.
func seize(report, socket string) {
	came := map[string]string{"move": "", "replace": "", "remove": "", "make another": ""}
	mine := filepath.Join(filepath.Dir(report), "mine")
	for what, err := range map[string]error{
		"make another": os.WriteFile(socket+".other", nil, 0o600),
		"replace":      errors.Join(os.WriteFile(mine, nil, 0o600), os.Rename(mine, socket)),
		"move":         os.Rename(socket, report+".moved"),
		"remove":       os.Remove(socket),
	} {
		if err != nil {
			came[what] = err.Error()
		}
	}
	_ = os.Chmod(socket, 0) // nothing stops that
	text, _ := json.Marshal(came)
	if err := os.WriteFile(report, text, 0o600); err != nil {
		panic(err)
	}
}

func (t target) attackProcess(pid int, try func(what string, err error)) {
	saw := map[string]bool{}
	testworld.Look(strconv.Itoa(pid), testworld.Passphrase, saw)
	for _, way := range []string{"mem", "environ", "maps", "ptrace"} {
		err := errNothing
		if saw[way] {
			err = nil
		}
		try(fmt.Sprint(way, " of ", pid), err)
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	for _, link := range []string{"root", "cwd", "exe"} {
		_, err := os.Readlink(proc + link)
		try(fmt.Sprint(link, " of ", pid), err)
	}
	_, err := os.ReadDir(proc + "root" + t.Home)
	try(fmt.Sprint("the home by the root of ", pid), err)
	_, err = os.ReadDir(proc + "fd")
	try(fmt.Sprint("descriptors of ", pid), err)
	_, err = os.ReadDir(proc + "map_files")
	try(fmt.Sprint("mapped files of ", pid), err)
	try(fmt.Sprint("write the memory of ", pid), writeMemory(pid))
	old := unix.Rlimit{}
	err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old)
	if err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil)
	}
	try(fmt.Sprint("limits of ", pid), err)
	var cpus unix.CPUSet
	err = unix.SchedGetaffinity(pid, &cpus)
	if err == nil {
		err = unix.SchedSetaffinity(pid, &cpus)
	}
	try(fmt.Sprint("processors of ", pid), err)
	try(fmt.Sprint("priority of ", pid), unix.Setpriority(unix.PRIO_PROCESS, pid, 19))
}

func writeMemory(pid int) error {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	if err == nil {
		err = f.Close()
	}
	return err
}

func (t target) attackFiles(try func(what string, err error)) {
	_, err := os.ReadDir(t.Home)
	try("list the home", err)
	own := filepath.Join(t.Own, "made")
	for _, name := range t.Files {
		path := filepath.Join(t.Home, name)
		_, err := os.ReadFile(path)
		try("read "+name, err)
		try("link "+name, os.Link(path, own+"."+name))
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		try("append to "+name, err)
		try("open up "+name, os.Chmod(path, 0o600))
	}
	for _, name := range t.Files {
		path := filepath.Join(t.Home, name)
		older := filepath.Join(t.Older, name)
		text, err := os.ReadFile(older)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		try("write an older "+name, err)
		try("put an older one in place of "+name, os.Rename(older, path))
		_ = os.WriteFile(own, []byte("mine"), 0o600)
		try("replace "+name, os.Rename(own, path))
		try("truncate "+name, os.Truncate(path, 0))
		try("remove "+name, os.Remove(path))
	}
	try("make a file in the home", os.WriteFile(filepath.Join(t.Home, "new"), nil, 0o600))
	try("make a link in the home", os.Symlink("/etc/passwd", filepath.Join(t.Home, "link")))
	try("open the home", os.Chmod(t.Home, 0o777))
	try("move the home", os.Rename(t.Home, t.Home+".moved"))
}

func (t target) attackSockets(try func(what string, err error)) {
	dial := func(path string) error {
		c, err := net.Dial("unix", path)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	home := t.Home
	if _, err := os.Stat(home + ".moved"); err == nil {
		home += ".moved"
	}
	try("the unlock agent", dial(filepath.Join(home, "agent.sock")))
	run := filepath.Dir(t.Socket)
	listen := func(path string) error {
		l, err := net.Listen("unix", path)
		if err == nil {
			err = l.Close()
		}
		return err
	}
	try("a socket beside the service's", listen(filepath.Join(run, "other.sock")))
	try("a link in the service's directory", os.Symlink(t.Own, filepath.Join(run, "link")))
	try("a file in the service's directory", os.WriteFile(filepath.Join(run, "file"), nil, 0o600))
	try("close the service's socket", os.Chmod(t.Socket, 0))
	try("move the service's socket", os.Rename(t.Socket, t.Socket+".moved"))
	try("remove the service's socket", os.Remove(t.Socket+".moved"))
	try("a socket in place of the service's", listen(t.Socket))
	try("move the service's directory", os.Rename(run, run+".moved"))
}
