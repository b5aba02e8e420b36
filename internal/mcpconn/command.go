package mcpconn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/child"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

const (
	// endTimeout is how long a command may take to end by itself, again to end on SIGTERM, and
	// again on SIGKILL: together less than the 5 s after which hosts kill us.
	endTimeout = 1500 * time.Millisecond
	// maxStderrLines is how many lines of a command's stderr go to our log; the rest is noise.
	maxStderrLines = 100
	// maxStderrLine is how many bytes of such a line are kept.
	maxStderrLine = 1 << 10
)

// Command reaches a server that is a program and speaks on its stdin and stdout. The program is the
// first of a session of its own, so that it can be ended with all that it starts, and has no terminal
// on which a person may type a passphrase. What it prints on stderr goes to stderr; nil: the first
// lines go to log, quoted.
//
// The SDK's transport for commands ends only the command itself, and over one line that is no
// message the session: npx and friends greet. Here such a line is logged and passed over. A message
// of more than x402.MaxMCPMessage bytes ends the session.
func Command(program child.Program, log *slog.Logger, stderr io.Writer) mcp.Transport {
	if stderr == nil {
		stderr = &stderrLog{log: log}
	}
	return transport(func() (mcp.Connection, error) { return startProgram(program, log, stderr) })
}

// transport is a function as an mcp.Transport.
type transport func() (mcp.Connection, error)

func (t transport) Connect(context.Context) (mcp.Connection, error) { return t() }

func startProgram(program child.Program, log *slog.Logger, stderr io.Writer) (mcp.Connection, error) {
	cmd, err := program.Command()
	if errors.Is(err, child.ErrUnconfined) {
		return nil, x402.Errorf(x402.ServerUnavailable,
			"the program of an MCP server is not started: %w", err).
			WithHint("it has sandbox = true; the owner writes sandbox = false to start it unconfined")
	}
	if err != nil {
		return nil, err
	}
	if why := program.Unconfined(); why != "" && len(program.Sandbox.Closed) > 0 &&
		child.Unsupported() == "" {
		log.Warn("an MCP server's program is not confined", "why", why)
	}
	cmd.Stderr = stderr
	cmd.WaitDelay = endTimeout // its children may hold its stderr
	setSession(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, incoming: newIncoming(), log: log}
	go p.receive(bufio.NewReaderSize(stdout, 64<<10))
	return p, nil
}

// process is the connection with a running command.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	writes sync.Mutex // whole lines
	incoming
	closing sync.Once
	log     *slog.Logger
}

func (p *process) Write(ctx context.Context, m jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() { // a command that reads nothing would block us; Close ends it, and this goroutine with it
		p.writes.Lock()
		defer p.writes.Unlock()
		_, err := p.stdin.Write(append(text, '\n'))
		written <- err
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return io.ErrClosedPipe
	}
}

// receive reads lines until stdout ends, or one is too long. What is no message is passed over.
func (p *process) receive(from *bufio.Reader) {
	defer close(p.messages)
	for {
		line, err := readLine(from, wire.MaxMCPMessage, false)
		line = bytes.TrimSpace(line)
		if len(line) > 0 {
			m, bad := jsonrpc.DecodeMessage(line)
			isMessage := bad == nil && line[0] == '{'
			if isMessage && !p.deliver(m) {
				return
			}
			if !isMessage {
				said := x402.Quote(string(line))
				p.log.Debug("an MCP server printed a line that is no message", "line", said)
			}
		}
		if errors.Is(err, errTooLong) {
			p.log.Warn("an MCP server's message is too long; the session ends", "limit", wire.MaxMCPMessage)
		}
		if err != nil {
			return
		}
	}
}

// Close ends the command with all that it started: by the end of its input, then by SIGTERM, then
// by SIGKILL (MCP, lifecycle, shutdown).
func (p *process) Close() error {
	p.closing.Do(func() {
		close(p.closed)
		_ = p.stdin.Close()
		gone := make(chan struct{})
		go func() {
			_ = p.cmd.Wait()
			close(gone)
		}()
		for _, harder := range []func(*exec.Cmd){terminateGroup, killGroup} {
			select {
			case <-gone:
			case <-time.After(endTimeout):
				harder(p.cmd)
			}
		}
		select {
		case <-gone:
		case <-time.After(endTimeout):
			p.log.Error("an MCP server's command cannot be ended", "pid", p.cmd.Process.Pid)
		}
		killGroup(p.cmd) // what it left behind
	})
	return nil
}

// stderrLog puts what a command prints on stderr into our log: quoted, and only the first lines.
type stderrLog struct {
	log   *slog.Logger
	line  []byte
	lines int
}

func (s *stderrLog) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, isWhole := bytes.Cut(rest, []byte("\n"))
		rest = after
		if len(s.line) < maxStderrLine {
			s.line = append(s.line, line[:min(len(line), maxStderrLine)]...)
		}
		if !isWhole {
			break
		}
		s.lines++
		if s.lines <= maxStderrLines && len(bytes.TrimSpace(s.line)) > 0 {
			s.log.Info("an MCP server printed on stderr", "stderr", x402.Quote(string(s.line)))
		} else if s.lines == maxStderrLines+1 {
			s.log.Info("an MCP server prints more on stderr; it is left out")
		}
		s.line = s.line[:0]
	}
	return len(p), nil
}
