//go:build crash && linux

package crash

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The wallet as a service of the home, with an agent's host behind x402-wallet mcp, which finds its socket:
// either of the two processes is broken. The restarts after that are those of the wallet in a process of its
// own; what the service left is theirs.

// serving starts the service of the home, and waits until agents can connect, or it has ended by the fault:
// then the agent's wallet is one of its own.
func (r *run) serving(watched bool) (*process, error) {
	f := r.fault
	if !watched {
		f = nil
	}
	p, err := r.start(r.bin, watched, f, "serve")
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		select {
		case <-p.waited:
			return p, nil
		default:
		}
		if info, err := os.Lstat(filepath.Join(r.home, "service.sock")); err == nil &&
			info.Mode().Type() == os.ModeSocket && info.Mode().Perm()&0o066 != 0 { // it listens before that
			return p, nil
		}
		if time.Now().After(until) {
			p.kill()
			return nil, errHangs
		}
	}
}

// stop ends a service as an administrator does.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.end()
}

// paysAtService is the paying call at a service that is broken, from its start to its end.
func paysAtService(r *run) error {
	service, err := r.serving(true)
	if err != nil {
		return err
	}
	defer func() {
		service.kill()
		r.calls, r.hit = service.watched()
	}()
	served := true
	select {
	case <-service.waited:
		served = false
	default:
	}
	agent, err := r.start(r.bin, false, nil, "mcp")
	if err != nil {
		return err
	}
	defer agent.kill()
	if served { // else it pays by itself
		agent.behind = service
	}
	if err := agent.initialize(); err != nil {
		r.broke("initialize", err, agent)
		return nil
	}
	if !r.same(agent, "at the broken service") {
		return nil
	}
	if err := agent.end(); err != nil {
		r.broke("the agent's end", err, agent)
	}
	if err := service.stop(); err != nil && served {
		r.broke("end", err, service)
	}
	return nil
}

// paysByRelay is the paying call by a relay that is broken.
func paysByRelay(r *run) error {
	service, err := r.serving(false)
	if err != nil {
		return err
	}
	defer service.kill()
	if err := pays(r); err != nil {
		return err
	}
	if err := service.stop(); err != nil {
		r.violation("the service does not end well: %v; its log: %s", err, service.stderr)
	}
	return nil
}
