package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Kill ends the server and all of its processes at once by SIGKILL, as a crash of its machine would, but that
// the system's cache stays. Restart starts it again. What it had not said it would keep may be gone.
func (c *Cluster) Kill(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		t.Fatal("the server does not run")
	}
	err := c.server.killAll()
	if err != nil {
		t.Fatal(err)
	}
	c.server = nil
	c.loseHeld()
}

// killAll stops the postmaster first, so that it starts no child that is not seen, and does not notice that
// one died. It returns when none of them runs, because a new server would refuse to start beside one.
func (p *process) killAll() error {
	err := p.Signal(pause)
	if err != nil {
		return err
	}
	all, err := children(p.Pid)
	if err != nil {
		return err
	}
	_ = p.Process.Kill()
	for pid := range all {
		child, err := os.FindProcess(pid)
		if err == nil {
			_ = child.Kill()
			_ = child.Release()
		}
	}
	<-p.ended
	for late := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		left, err := living(all)
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("%d processes of the server were killed and still run", left)
		}
	}
}

// children are the processes that a postmaster started. They have none of their own.
func children(of int) (map[int]bool, error) {
	all, err := processes()
	found := map[int]bool{}
	for _, p := range all {
		found[p.pid] = found[p.pid] || p.parent == of
	}
	for pid, is := range found {
		if !is {
			delete(found, pid)
		}
	}
	return found, err
}

// living counts those of the processes that run. Who is dead and not waited for is dead.
func living(which map[int]bool) (n int, err error) {
	all, err := processes()
	for _, p := range all {
		if which[p.pid] && !p.dead {
			n++
		}
	}
	return n, err
}

type aProcess struct {
	pid, parent int
	dead        bool
}

func processes() (all []aProcess, err error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes by ps: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, err
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, err
		}
		all = append(all, aProcess{pid, parent, strings.HasPrefix(fields[2], "Z")})
	}
	return all, nil
}
