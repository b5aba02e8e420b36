package seller

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

	"x402-wallet/x402"
)

const (
	// endPatience is how long a command may take to end of its own, and again to end when it is
	// told to. Both and the killing take less than hosts leave us.
	endPatience = 1500 * time.Millisecond
	// maxSaid is how many lines of a command's stderr go to our log; the rest is noise.
	maxSaid = 100
)

// program is a command that speaks MCP on its stdin and stdout. It gets our environment, from which
// config.ReadEnv took the secrets.
type program struct {
	command []string
	log     *slog.Logger
}

// Connect implements mcp.Transport. The SDK's own transport for commands ends only the command
// itself, and over one line that is no message the session: npx and friends greet.
func (p *program) Connect(context.Context) (mcp.Connection, error) {
	cmd := exec.CommandContext(context.Background(), p.command[0],
		p.command[1:]...) //nolint:gosec // the sealed config.toml names it; it outlives the call
	cmd.Stderr = &said{log: p.log}
	cmd.WaitDelay = endPatience // its children may hold its stderr
	ownGroup(cmd)
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
	c := &process{cmd: cmd, stdin: stdin, incoming: make(chan jsonrpc.Message), closed: make(chan struct{}),
		log: p.log}
	go c.receive(bufio.NewReaderSize(stdout, 64<<10))
	return newTap(c, true), nil
}

// process is the connection with a running command, one JSON-RPC message a line.
type process struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	writing sync.Mutex

	incoming chan jsonrpc.Message
	closed   chan struct{}
	closing  sync.Once
	log      *slog.Logger
}

// SessionID implements mcp.Connection.
func (c *process) SessionID() string { return "" }

// Read implements mcp.Connection.
func (c *process) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, io.EOF
	case m, more := <-c.incoming:
		if !more {
			return nil, io.EOF
		}
		return m, nil
	}
}

// Write implements mcp.Connection.
func (c *process) Write(ctx context.Context, m jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() { // a command that reads nothing would hold us for ever; it is ended then, and this with it
		c.writing.Lock()
		defer c.writing.Unlock()
		_, err := c.stdin.Write(append(text, '\n'))
		written <- err
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

// receive reads lines until stdout ends, or one is too long. What is no message is passed over.
func (c *process) receive(from *bufio.Reader) {
	defer close(c.incoming)
	for {
		line, err := readLine(from, x402.MaxMCPMessage)
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if m, bad := jsonrpc.DecodeMessage(line); bad == nil && line[0] == '{' {
				select {
				case c.incoming <- m:
				case <-c.closed:
					return
				}
			} else {
				c.log.Debug("an MCP server printed what is no message", "line", quote(string(line)))
			}
		}
		if err != nil {
			if errors.Is(err, errLongLine) {
				c.log.Warn("an MCP server's message is too long; the session ends", "limit",
					x402.MaxMCPMessage)
			}
			return
		}
	}
}

var errLongLine = errors.New("the line is too long")

func readLine(from *bufio.Reader, limit int) (line []byte, err error) {
	for {
		part, err := from.ReadSlice('\n')
		if line = append(line, part...); len(line) > limit {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Close ends the command with all that it started: by the end of its input, then asking, then not
// asking (MCP, lifecycle, shutdown).
func (c *process) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		_ = c.stdin.Close()
		gone := make(chan struct{})
		go func() {
			_ = c.cmd.Wait()
			close(gone)
		}()
		for _, more := range []func(*exec.Cmd){terminate, kill} {
			select {
			case <-gone:
			case <-time.After(endPatience):
				more(c.cmd)
			}
		}
		select {
		case <-gone:
		case <-time.After(endPatience):
			c.log.Error("an MCP server's command cannot be ended", "pid", c.cmd.Process.Pid)
		}
		kill(c.cmd) // whom it left behind
	})
	return nil
}

// said puts what a command prints on stderr into our log: quoted, and not for ever.
type said struct {
	log   *slog.Logger
	line  []byte
	lines int
}

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		rest = after
		if len(s.line) < 1<<10 {
			s.line = append(s.line, line[:min(len(line), 1<<10)]...)
		}
		if !whole {
			break
		}
		if s.lines++; s.lines <= maxSaid && len(bytes.TrimSpace(s.line)) > 0 {
			s.log.Info("an MCP server says", "stderr", quote(string(s.line)))
		} else if s.lines == maxSaid+1 {
			s.log.Info("an MCP server says more; it is left out")
		}
		s.line = s.line[:0]
	}
	return len(p), nil
}
