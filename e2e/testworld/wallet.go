package testworld

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Versions of MCP: the one that clients speak by default, and the newest, which has no handshake.
const (
	Protocol = "2025-11-25"
	Newest   = "2026-07-28"
)

const (
	initializeWait = 2 * time.Minute // on a machine that compiles and fuzzes
	stopWait       = 10 * time.Second
	// closeWait is how long a wallet may take to end when its input has ended. It finishes payments
	// on the way under their own deadline.
	closeWait = 2 * time.Minute
)

// ErrWalletEnded is the error of calls whose answer can no longer come.
var ErrWalletEnded = errors.New("the wallet has ended")

// RPCError is a JSON-RPC error that the wallet answered.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("JSON-RPC error %d: %s", e.Code, e.Message) }

// Result is the result of a tool call. Text is the text of its first content.
type Result struct {
	IsError    bool
	Structured json.RawMessage
	Text       string
}

// WalletOptions are what a test's MCP client wants beyond the plain one.
type WalletOptions struct {
	Version      string         // of the protocol, Protocol by default
	Args         []string       // behind mcp
	Env          []string       // further environment, NAME=value
	Capabilities map[string]any // the client's; none when nil
	IsSilent     bool           // a call that it gives up is not cancelled
	// OnRequest answers requests of the wallet, such as elicitation/create. Its result is the
	// JSON-RPC result. Without it, or with an error, the request is refused as unknown. It is
	// called on a goroutine of its own.
	OnRequest func(method string, params json.RawMessage) (any, error)
}

// Wallet is a running `x402-wallet mcp` and the MCP client that drives it. The client writes the
// protocol's lines itself, without the library the wallet is built with, so that a mistake of that
// library cannot hide on both sides. Calls may run concurrently.
type Wallet struct {
	Home       Home
	Initialize json.RawMessage // the result of initialize

	t       testing.TB
	options WalletOptions
	cmd     *exec.Cmd
	stderr  *Tail
	nextID  atomic.Int64
	ended   chan struct{} // closed when the process is gone and waited for
	waitErr error         // of the process, once ended

	writing sync.Mutex
	stdin   io.WriteCloser

	mu      sync.Mutex
	waiting map[int64]chan rpcMessage // nil once the output has ended
	noise   []string                  // lines on stdout that are no JSON-RPC
	settled bool                      // closed or killed on purpose
}

type rpcMessage struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *RPCError       `json:"error,omitempty"`
}

// StartWallet starts the wallet at a home as an MCP server and initializes it. It is closed when
// the test ends, and fails the test if it does not end well or has written anything but JSON-RPC on
// its standard output.
func StartWallet(t testing.TB, bin string, home Home, extraEnv ...string) *Wallet {
	t.Helper()
	return StartWalletWith(t, bin, home, WalletOptions{Env: extraEnv})
}

func StartWalletWith(t testing.TB, bin string, home Home, options WalletOptions) *Wallet {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"mcp"}, options.Args...)...)
	cmd.Env = home.Env(options.Env...)
	cmd.WaitDelay = stopWait
	w := &Wallet{
		Home: home, t: t, options: options, cmd: cmd, stderr: &Tail{},
		ended: make(chan struct{}), waiting: make(map[int64]chan rpcMessage),
	}
	cmd.Stderr = w.stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	w.stdin = stdin
	require.NoError(t, cmd.Start())
	go w.read(stdout)
	t.Cleanup(w.finish)

	require.NoError(t, w.initialize(), w.stderr)
	return w
}

func (w *Wallet) initialize() error {
	if w.options.Version == Newest {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), initializeWait)
	defer cancel()
	capabilities := w.options.Capabilities
	if capabilities == nil {
		capabilities = map[string]any{}
	}
	var err error
	w.Initialize, err = w.Request(ctx, "initialize", map[string]any{
		"protocolVersion": cmp.Or(w.options.Version, Protocol),
		"capabilities":    capabilities,
		"clientInfo":      map[string]any{"name": "e2e", "version": "1"},
	})
	if err != nil {
		return err
	}
	return w.notify("notifications/initialized", nil)
}

// Call calls a tool. When ctx ends first the wallet is told, as clients do, and the call's answer
// is no longer waited for.
func (w *Wallet) Call(ctx context.Context, tool string, args any) (Result, error) {
	raw, err := w.Request(ctx, "tools/call", map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return Result{}, err
	}
	var answer struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Type, Text string }
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return Result{}, fmt.Errorf("result of %s: %w", tool, err)
	}
	result := Result{IsError: answer.IsError, Structured: answer.StructuredContent}
	if len(answer.Content) > 0 {
		result.Text = answer.Content[0].Text
	}
	return result, nil
}

// Request sends any request and waits for its result; an error answer is an *RPCError.
func (w *Wallet) Request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	id := w.nextID.Add(1)
	answer := make(chan rpcMessage, 1)
	w.mu.Lock()
	if w.waiting == nil {
		w.mu.Unlock()
		return nil, ErrWalletEnded
	}
	w.waiting[id] = answer
	w.mu.Unlock()

	if err := w.send(rpcMessage{ID: rawID(id), Method: method}, params); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWalletEnded, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return nil, ErrWalletEnded
		case m.Error != nil:
			return nil, m.Error
		}
		return m.Result, nil
	case <-ctx.Done():
		w.mu.Lock()
		delete(w.waiting, id)
		w.mu.Unlock()
		if !w.options.IsSilent {
			_ = w.notify("notifications/cancelled", map[string]any{"requestId": id})
		}
		return nil, ctx.Err()
	}
}

// Kill ends the wallet with SIGKILL, as a power cut would.
func (w *Wallet) Kill() {
	w.settle()
	_ = w.cmd.Process.Kill()
	<-w.ended
}

// Close ends the wallet's input, as a client does that goes away, and waits for the wallet to end
// by itself.
func (w *Wallet) Close() error {
	w.settle()
	_ = w.stdin.Close() // not behind the lock: it also ends a write that a stuck wallet keeps waiting
	select {
	case <-w.ended:
		return w.waitErr
	case <-time.After(closeWait):
		_ = w.cmd.Process.Kill()
		<-w.ended
		return fmt.Errorf("the wallet did not end within %v after its input", closeWait)
	}
}

// PID is the process id of the server.
func (w *Wallet) PID() int { return w.cmd.Process.Pid }

// Stderr is the end of what the wallet has logged.
func (w *Wallet) Stderr() string { return w.stderr.String() }

// settle notes that the end is on purpose; tells whether it was noted before.
func (w *Wallet) settle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.settled
	w.settled = true
	return before
}

// finish runs when the test ends.
func (w *Wallet) finish() {
	if !w.settle() {
		if err := w.Close(); err != nil {
			w.t.Errorf("close the wallet: %v", err)
		}
	}
	w.mu.Lock()
	noise := w.noise
	w.mu.Unlock()
	for _, line := range noise {
		w.t.Errorf("the wallet wrote on stdout what is no JSON-RPC message: %q", line)
	}
	if log := w.Stderr(); log != "" && w.t.Failed() {
		w.t.Logf("the wallet's log:\n%s", log)
	}
}

func (w *Wallet) notify(method string, params any) error {
	return w.send(rpcMessage{Method: method}, params)
}

func (w *Wallet) send(m rpcMessage, params any) error {
	m.JSONRPC = "2.0"
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return err
		}
		m.Params = raw
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	_, err = w.stdin.Write(append(line, '\n'))
	return err
}

// read handles what the wallet says until it stops talking, then waits for its end.
func (w *Wallet) read(stdout io.Reader) {
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			w.hear(line)
		}
		if err != nil {
			break
		}
	}
	w.mu.Lock()
	for _, answer := range w.waiting {
		close(answer)
	}
	w.waiting = nil
	w.mu.Unlock()
	w.waitErr = w.cmd.Wait()
	close(w.ended)
}

func (w *Wallet) hear(line []byte) {
	var m rpcMessage
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		w.mu.Lock()
		w.noise = append(w.noise, string(line))
		w.mu.Unlock()
		return
	}
	switch {
	case m.Method != "" && m.ID != nil:
		go w.answer(m)
	case m.Method != "": // a notification: nothing waits for one
	default:
		var id int64
		if json.Unmarshal(m.ID, &id) != nil {
			return
		}
		w.mu.Lock()
		answer := w.waiting[id]
		delete(w.waiting, id)
		w.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

func (w *Wallet) answer(asked rpcMessage) {
	reply := rpcMessage{ID: asked.ID}
	var result any = struct{}{}
	err := errors.New("this client does not know it")
	switch {
	case asked.Method == "ping":
		err = nil
	case w.options.OnRequest != nil:
		result, err = w.options.OnRequest(asked.Method, asked.Params)
	}
	if err == nil {
		reply.Result, err = json.Marshal(result)
	}
	if err != nil {
		reply.Result, reply.Error = nil, &RPCError{Code: -32601, Message: asked.Method + ": " + err.Error()}
	}
	_ = w.send(reply, nil) // a wallet that has ended needs no answer
}

func rawID(id int64) json.RawMessage { return json.RawMessage(fmt.Sprint(id)) }

// Tail keeps the end of what a process wrote, for messages.
type Tail struct {
	mu   sync.Mutex
	data []byte
}

const tailBytes = 64 << 10

func (b *Tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if extra := len(b.data) - tailBytes; extra > 0 {
		b.data = b.data[extra:]
	}
	return len(p), nil
}

func (b *Tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.TrimSpace(b.data))
}
