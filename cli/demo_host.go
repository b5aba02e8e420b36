package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// demoHost plays the host of an agent: it starts an MCP server and speaks newline-delimited
// JSON-RPC with it over stdio. Of the protocol it knows what calling tools takes (MCP 2025-11-25).
type demoHost struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte
	errors demoLog
	next   int
	ended  bool
}

// maxDemoLine bounds one message: paid content of 64 KiB is in it twice.
const maxDemoLine = 1 << 20

// startDemoHost starts the server and shakes hands.
func startDemoHost(ctx context.Context, cmd *exec.Cmd) (*demoHost, error) {
	h := &demoHost{cmd: cmd, lines: make(chan []byte)}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.in, cmd.Stderr, cmd.WaitDelay = in, &h.errors, 5*time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the MCP server: %w", err)
	}
	go func() {
		defer close(h.lines)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, maxDemoLine)
		for scanner.Scan() {
			h.lines <- bytes.Clone(scanner.Bytes())
		}
	}()
	hello := map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "x402-wallet demo", "version": "1"},
	}
	if err := h.ask(ctx, "initialize", hello, &struct{}{}); err != nil {
		return nil, fmt.Errorf("the MCP server did not start: %w%s", errors.Join(err, h.stop()),
			h.complaints())
	}
	return h, h.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

func (h *demoHost) send(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = h.in.Write(append(text, '\n'))
	return err
}

// ask makes a request and reads its result into one; what else the server says meanwhile is passed
// over.
func (h *demoHost) ask(ctx context.Context, method string, params, result any) error {
	h.next++
	if err := h.send(map[string]any{"jsonrpc": "2.0", "id": h.next, "method": method,
		"params": params}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, open := <-h.lines:
			if !open {
				return errors.New("it ended")
			}
			var answer struct {
				ID     *int            `json:"id"`
				Method string          `json:"method"`
				Result json.RawMessage `json:"result"`
				Error  json.RawMessage `json:"error"`
			}
			if err := json.Unmarshal(line, &answer); err != nil {
				return fmt.Errorf("a line that is no JSON-RPC: %w", err)
			}
			switch {
			case answer.Method != "" || answer.ID == nil || *answer.ID != h.next:
			case answer.Error != nil:
				return fmt.Errorf("%s: %s", method, answer.Error)
			default:
				return json.Unmarshal(answer.Result, result)
			}
		}
	}
}

// tool calls a tool. isError tells whose form out got: the tool's own, or that of an error.
func (h *demoHost) tool(ctx context.Context, name string, arguments, out any) (isError bool, err error) {
	var result struct {
		IsError           bool            `json:"isError"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		Content           []struct{ Text string }
	}
	if err := h.ask(ctx, "tools/call", map[string]any{"name": name, "arguments": arguments},
		&result); err != nil {
		return false, err
	}
	if len(result.Content) != 1 || result.Content[0].Text != string(result.StructuredContent) {
		return false, fmt.Errorf("%s: text and structured content differ", name)
	}
	return result.IsError, json.Unmarshal(result.StructuredContent, out)
}

// stop ends the server as hosts do, by closing its stdin.
func (h *demoHost) stop() error {
	if h.ended {
		return nil
	}
	h.ended = true
	h.in.Close()
	for range h.lines { // until it has closed its stdout
	}
	return h.cmd.Wait()
}

// complaints is what the server said on stderr, for an error.
func (h *demoHost) complaints() string {
	if said := strings.TrimSpace(h.errors.String()); said != "" {
		return "\nthe MCP server said:\n" + said
	}
	return ""
}

// demoLog may be read while a process still writes to it.
type demoLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *demoLog) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *demoLog) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
