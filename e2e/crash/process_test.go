//go:build crash && linux

package crash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// patience is how long anything may take before it counts as hanging. The config's deadline is 30
// s, and a payment has it twice; the rest is for a machine that is doing other things.
const patience = 120 * time.Second

var (
	errEnded = errors.New("the process has ended")
	errHangs = errors.New("the process hangs")
)

// process is a running wallet.
type process struct {
	cmd      *exec.Cmd
	injector *injector // nil: it runs undisturbed
	behind   *process  // that does what this one is asked, and may be broken; nil: none
	in       io.WriteCloser
	lines    chan []byte // what it printed; closed with its output
	stderr   *journal
	next     int
	waited   chan struct{}
	err      error // of Wait, once waited is closed
}

// journal keeps what was written to it.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// start runs the wallet in this world's home; watched with an injector, which injects f unless that
// is nil.
func (w *world) start(bin string, watched bool, f *fault, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(bin, args...), lines: make(chan []byte, 64), stderr: &journal{},
		waited: make(chan struct{})}
	p.cmd.Args[0] = bin
	p.cmd.Env = []string{"X402_WALLET_HOME=" + w.home, "X402_WALLET_PASSPHRASE_FILE=" + w.passphraseFile(),
		"HOME=" + w.dir + "/user",
		"NO_COLOR=1", "GOMAXPROCS=1"} // two points run at a time on two processors
	p.cmd.Stderr, p.cmd.WaitDelay = p.stderr, time.Second
	attach := func() error { return nil }
	var err error
	if watched {
		p.injector, attach, err = watch(p.cmd, w.home, f)
		if err != nil {
			return nil, err
		}
	}
	p.in, err = p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	if err := attach(); err != nil {
		p.kill()
		return nil, fmt.Errorf("watch the wallet: %w\n%s", err, p.stderr)
	}
	return p, nil
}

func (p *process) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break // what has no end was not read by anybody
		}
		p.lines <- line
	}
	close(p.lines)
	p.err = p.cmd.Wait()
	close(p.waited)
}

// answer is what x402_pay answered: a result, or an error with its code.
type answer struct {
	Status, PaymentID, Content string
	HTTPStatus                 int
	TransactionSignature       string

	Error, Message, Spent string
}

func (a answer) String() string {
	if a.Error != "" {
		return fmt.Sprintf("%s (%s, spent %s, %s)", a.Error, a.Message, a.Spent, a.PaymentID)
	}
	return fmt.Sprintf("%s %d %s", a.Status, a.HTTPStatus, a.PaymentID)
}

// got reports whether the buyer has what it bought: the next identical call may be another
// purchase.
func (a answer) got() bool { return a.Error == "" && (a.Status == "paid" || a.Status == "replayed") }

// paid reports whether it says that money moved.
func (a answer) paid() bool { return a.got() || (a.Error == "" && a.Status == "paid_not_served") }

// initialize shakes hands.
func (p *process) initialize() error {
	hello := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "crash", "version": "1"}}
	if err := p.ask("initialize", hello, &struct{}{}); err != nil {
		return err
	}
	return p.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// pay calls x402_pay.
func (p *process) pay(args map[string]any) (a answer, err error) {
	var result struct{ StructuredContent answer }
	err = p.ask("tools/call", map[string]any{"name": "x402_pay", "arguments": args}, &result)
	return result.StructuredContent, err
}

func (p *process) send(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return errEnded
	}
	return nil
}

func (p *process) ask(method string, params, result any) error {
	p.next++
	if err := p.send(map[string]any{"jsonrpc": "2.0", "id": p.next, "method": method,
		"params": params}); err != nil {
		return err
	}
	limit := time.After(patience)
	var alone <-chan struct{} // the relay would wait for another service, and there comes none
	if p.behind != nil {
		alone = p.behind.waited
	}
	for {
		select {
		case <-alone:
			alone = nil
			_ = p.in.Close() // it says what it has, and ends
		case line, open := <-p.lines:
			if !open {
				return errEnded
			}
			var m struct {
				ID     int
				Result json.RawMessage
				Error  json.RawMessage
			}
			if err := json.Unmarshal(line, &m); err != nil {
				return fmt.Errorf("not JSON on stdout: %q", line)
			}
			if m.ID != p.next {
				continue
			}
			if m.Error != nil {
				return fmt.Errorf("%s: %s", method, m.Error)
			}
			return json.Unmarshal(m.Result, result)
		case <-limit:
			return errHangs
		}
	}
}

// end closes the wallet's input and waits until it has ended by itself.
func (p *process) end() error {
	_ = p.in.Close()
	go func() {
		for range p.lines { // whatever else it says
		}
	}()
	select {
	case <-p.waited:
		return p.err
	case <-time.After(patience):
		p.kill()
		return errHangs
	}
}

// output waits for a command's end and is all that it printed.
func (p *process) output() (text []byte, err error) {
	limit := time.After(patience)
	for {
		select {
		case line, open := <-p.lines:
			if open {
				text = append(text, line...)
				continue
			}
			<-p.waited
			return text, p.err
		case <-limit:
			p.kill()
			return text, errHangs
		}
	}
}

// kill ends it as a power cut would, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	for range p.lines {
	}
	<-p.waited
	if p.injector != nil && p.injector.process != nil {
		<-p.injector.done
	}
}

// watched is what the injector saw.
func (p *process) watched() ([]call, bool) { return p.injector.seen() }

// over waits until the server has noticed that the wallet's processes are gone: what they sent it still does.
// It ends the time in which they are taken for alive, and that of their turns: 10 s and 30 s.
func (w *world) over() error {
	if w.database == nil {
		return nil
	}
	n := -1
	for late := time.Now().Add(patience); n != 0; time.Sleep(2 * time.Millisecond) {
		err := w.database.QueryRow(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'x402-wallet'`).Scan(&n)
		if err != nil || time.Now().After(late) {
			return errors.Join(err, fmt.Errorf("%d sessions are left", n))
		}
	}
	_, err := w.database.Exec(`DO $$ BEGIN UPDATE x402.instances SET until = 0; UPDATE x402.turns SET until = 0;
		EXCEPTION WHEN undefined_table THEN END $$`)
	return err
}
