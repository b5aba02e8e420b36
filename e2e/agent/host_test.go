package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// patience is how long a host waits for an answer that is sure to come.
const patience = 40 * time.Second

// host is an MCP host: it starts the wallet as a child process and speaks with it over stdio. It writes
// its lines itself, so that no library stands on both sides.
type host struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	ended  chan struct{}
	elicit string // what its person answers to a question: "accept" or "decline"; "": it cannot ask

	mu      sync.Mutex // of what follows, and of writing
	last    int
	waiting map[int]chan message
	asked   []string // what the person was asked
}

// message is any JSON-RPC message.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// startHost starts the wallet and shakes hands; both end with the test.
func startHost(t *testing.T, home testworld.Home, env []string, elicit string) *host {
	h := &host{cmd: exec.Command(testworld.Build(t), "mcp"), elicit: elicit, ended: make(chan struct{}),
		waiting: map[int]chan message{}}
	h.cmd.Env, h.cmd.Stderr, h.cmd.WaitDelay = env, &h.stderr, 5*time.Second
	stdout, err := h.cmd.StdoutPipe()
	require.NoError(t, err)
	h.stdin, err = h.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, h.cmd.Start())
	go h.read(stdout)
	t.Cleanup(func() { h.end(t) })
	capabilities := map[string]any{}
	if elicit != "" {
		capabilities["elicitation"] = map[string]any{}
	}
	_, ok := h.request("initialize", map[string]any{"protocolVersion": "2025-11-25",
		"capabilities": capabilities,
		"clientInfo":   map[string]any{"name": "trial", "version": "1"}}, patience)
	require.True(t, ok, "the wallet does not answer initialize")
	h.send(message{Method: "notifications/initialized"})
	return h
}

// end ends the wallet's input, as a host does that goes away.
func (h *host) end(t *testing.T) {
	_ = h.stdin.Close()
	select {
	case <-h.ended:
	case <-time.After(patience):
		_ = h.cmd.Process.Kill()
		<-h.ended
		t.Errorf("the wallet did not end with its input")
	}
	if t.Failed() {
		t.Logf("the wallet's log:\n%s", h.stderr.String())
	}
}

func (h *host) send(m message) {
	m.Version = "2.0"
	line, _ := json.Marshal(m)
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = h.stdin.Write(append(line, '\n'))
}

// request sends one and waits for its answer; after that it gives up without a word, as many hosts do.
func (h *host) request(method string, params any, wait time.Duration) (m message, ok bool) {
	answered := make(chan message, 1)
	h.mu.Lock()
	h.last++
	id := h.last
	h.waiting[id] = answered
	h.mu.Unlock()
	raw, _ := json.Marshal(id)
	h.send(message{ID: raw, Method: method, Params: params})
	select {
	case m, ok = <-answered:
		return m, ok
	case <-time.After(wait):
	}
	return m, false
}

func (h *host) read(stdout io.Reader) {
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		var m message
		if json.Unmarshal(line, &m) == nil {
			h.hear(m)
		}
		if err != nil {
			break
		}
	}
	h.mu.Lock()
	for _, answered := range h.waiting {
		close(answered)
	}
	clear(h.waiting)
	h.mu.Unlock()
	_ = h.cmd.Wait()
	close(h.ended)
}

func (h *host) hear(m message) {
	switch {
	case m.Method == "elicitation/create":
		text, _ := json.Marshal(m.Params)
		h.mu.Lock()
		h.asked = append(h.asked, string(text))
		h.mu.Unlock()
		go h.send(message{ID: m.ID, Result: json.RawMessage(`{"action":"` + h.elicit + `","content":{}}`)})
	case m.Method != "" && m.ID != nil:
		go h.send(message{ID: m.ID, Result: json.RawMessage(`{}`)})
	case m.Method == "":
		var id int
		_ = json.Unmarshal(m.ID, &id)
		h.mu.Lock()
		answered := h.waiting[id]
		delete(h.waiting, id)
		h.mu.Unlock()
		if answered != nil {
			answered <- m
		}
	}
}

// call calls a tool and gives what the model reads of the answer.
func (h *host) call(tool string, args map[string]any, wait time.Duration) answer {
	m, ok := h.request("tools/call", map[string]any{"name": tool, "arguments": args}, wait)
	if !ok {
		return answer{lost: true}
	}
	if m.Error != nil {
		return answer{isError: true, text: string(m.Error), fields: map[string]any{"error": "JSON-RPC"}}
	}
	var result struct {
		IsError bool
		Content []struct{ Type, Text string }
	}
	_ = json.Unmarshal(m.Result, &result)
	a := answer{isError: result.IsError}
	for _, c := range result.Content {
		if c.Type == "text" && a.text == "" {
			a.text = c.Text
		}
	}
	_ = json.Unmarshal([]byte(a.text), &a.fields)
	return a
}
