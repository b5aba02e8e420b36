package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// program runs one of PostgreSQL's programs as the server's user.
func (c *Cluster) program(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	c.equip(cmd)
	_, err := run(cmd)
	return err
}

// equip gives a program the server's user, and its directory.
func (c *Cluster) equip(cmd *exec.Cmd) {
	cmd.Dir, cmd.Env = c.dir, environment()
	runAs(cmd, c.owner)
}

// environment is that of PostgreSQL's programs. They see nothing of ours, where PGHOST and the like may be,
// and speak English, which serverLog and startServer read.
func environment() []string { return []string{"LC_ALL=C", "TZ=UTC"} }

// run gives what a program printed, and its complaint as an error.
func run(cmd *exec.Cmd) (string, error) {
	var said, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complaint
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, complaint.Bytes())
	}
	return strings.TrimSpace(said.String()), err
}

type process struct {
	*os.Process
	log   *serverLog
	ended chan struct{} // closed when it has been waited for
}

// startProcess starts a postmaster and returns when it answers. Its goroutine stays on one thread until the
// postmaster has ended, because Linux tells a child of its parent's death when that thread dies.
func (c *Cluster) startProcess(args ...string) (*process, error) {
	cmd := exec.Command(filepath.Join(c.bin, "postgres"), args...)
	c.equip(cmd)
	cmd.WaitDelay = time.Second // children of a postmaster that was killed may hold its log's pipe
	endWithUs(cmd)
	p := &process{log: &serverLog{ready: make(chan struct{})}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(p.ended)
		}
	}()
	err := <-started
	if err != nil {
		return nil, err
	}
	p.Process = cmd.Process
	select {
	case <-p.log.ready:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("postgres ended:\n%s", p.log)
	case <-time.After(patience):
		p.stop(syscall.SIGQUIT)
		return nil, fmt.Errorf("postgres does not answer after %v:\n%s", patience, p.log)
	}
}

// stop ends the postmaster: by SIGINT in order, by SIGQUIT at once, which leaves the next start to repair the
// data. It is killed if that takes too long.
func (p *process) stop(how os.Signal) {
	err := p.Signal(how)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		_ = p.Process.Kill()
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.Process.Kill()
		<-p.ended
	}
}

// serverLog keeps the end of what a server logs, and notices when it is ready.
type serverLog struct {
	mu    sync.Mutex
	text  []byte
	ready chan struct{}
	said  bool // ready is closed
}

func (l *serverLog) Write(p []byte) (int, error) {
	const kept = 64 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if !l.said && bytes.Contains(l.text, []byte("ready to accept")) {
		l.said = true
		close(l.ready)
	}
	l.text = l.text[max(0, len(l.text)-kept):]
	return len(p), nil
}

func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
