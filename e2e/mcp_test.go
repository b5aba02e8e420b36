package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/x402test"
)

// host is an MCP client that says and hears single lines, so that a test can say what no proper
// client says, and hear all.
type host struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File // its reading end
	stderr *tail
	ended  chan error // what Wait said, once

	mu    sync.Mutex
	said  []string           // by the wallet, on stdout
	known map[string]message // answers by id
}

// startHost starts the wallet and says nothing yet. Whatever the wallet says on stdout must be JSON-RPC.
func startHost(t *testing.T, bin string, home testworld.Home) *host {
	cmd := exec.Command(bin, "mcp")
	cmd.Env = home.Env()
	h := &host{t: t, cmd: cmd, stderr: &tail{}, ended: make(chan error, 1), known: map[string]message{}}
	cmd.Stderr = h.stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	ours, theirs, err := os.Pipe()
	require.NoError(t, err)
	h.stdin, h.stdout, cmd.Stdout = stdin, ours, theirs
	require.NoError(t, cmd.Start())
	require.NoError(t, theirs.Close())
	go h.listen()
	go func() { h.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // one that has ended already does not mind
		for _, line := range h.all() {
			var m message
			require.NoError(t, json.Unmarshal([]byte(line), &m), "%q", line)
			require.Equal(t, "2.0", m.JSONRPC, line)
		}
		if t.Failed() {
			t.Logf("the wallet's log:\n%s", h.stderr)
		}
	})
	return h
}

func (h *host) listen() {
	lines := bufio.NewReader(h.stdout)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var m message
			_ = json.Unmarshal([]byte(line), &m) // judged at the end of the test
			h.mu.Lock()
			h.said = append(h.said, line)
			h.known[string(m.ID)] = m
			h.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

func (h *host) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.said)
}

func (h *host) raw(line string) {
	h.t.Helper()
	_, err := io.WriteString(h.stdin, line+"\n")
	require.NoError(h.t, err)
}

func (h *host) send(id any, method string, params any) {
	h.t.Helper()
	m := map[string]any{"jsonrpc": "2.0", "method": method}
	if id != nil {
		m["id"] = id
	}
	if params != nil {
		m["params"] = params
	}
	text, err := json.Marshal(m)
	require.NoError(h.t, err)
	h.raw(string(text))
}

// answer waits for the answer to a request.
func (h *host) answer(id any) (m message) {
	h.t.Helper()
	key, err := json.Marshal(id)
	require.NoError(h.t, err)
	require.Eventually(h.t, func() (ok bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		m, ok = h.known[string(key)]
		return ok
	}, 30*time.Second, 5*time.Millisecond, "no answer to %v", id)
	return m
}

func (h *host) ask(id any, method string, params any) json.RawMessage {
	h.t.Helper()
	h.send(id, method, params)
	m := h.answer(id)
	require.Nil(h.t, m.Error, "%+v", m.Error)
	return m.Result
}

func (h *host) initialize(version string) (result struct {
	ProtocolVersion, Instructions string
	Capabilities                  map[string]any
	ServerInfo                    struct{ Name, Version string }
}) {
	h.t.Helper()
	raw := h.ask(0, "initialize", map[string]any{"protocolVersion": version, "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "e2e", "version": "1"}})
	require.NoError(h.t, json.Unmarshal(raw, &result))
	h.send(nil, "notifications/initialized", nil)
	return result
}

// tool reads the answer of a tool.
func (h *host) tool(result json.RawMessage) (a answer) {
	h.t.Helper()
	var r struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Text string }
	}
	require.NoError(h.t, json.Unmarshal(result, &r))
	require.Len(h.t, r.Content, 1)
	require.JSONEq(h.t, string(r.StructuredContent), r.Content[0].Text)
	require.NoError(h.t, json.Unmarshal(r.StructuredContent, &a))
	return a
}

func toolCall(name string, arguments any) map[string]any {
	return map[string]any{"name": name, "arguments": arguments}
}

// end waits for the process to end by itself.
func (h *host) end(within time.Duration) {
	h.t.Helper()
	select {
	case err := <-h.ended:
		require.NoError(h.t, err, h.stderr)
	case <-time.After(within):
		require.FailNow(h.t, "the wallet does not end", "%s", h.stderr)
	}
}

// play is a sandbox and a home whose wallet has money there.
func play(t *testing.T, o x402test.Options) (*x402test.Sandbox, string, testworld.Home) {
	world, bin := x402test.New(t, o), testworld.Build(t)
	home := testworld.NewHome(t, world.WalletConfig())
	world.Fund(t, home.EVM, "10.00")
	return world, bin, home
}

// weather is what the sandbox's seller delivers for /weather.
const weather = `{"city":"Lisbon","celsius":21,"sky":"clear"}`

// ownTools is how many tools the wallet has by itself.
const ownTools = 12

const newest = "2026-07-28"

// Every protocol there is, on the same binary: the list of tools, and a payment.
func TestProtocolEras(t *testing.T) {
	world, bin, home := play(t, x402test.Options{})
	buy := map[string]any{"url": world.SellerURL + "/weather"}
	var lists []string
	paidFor := func(t *testing.T, a answer) {
		require.Equal(t, "paid", a.Status, "%+v", a)
		require.JSONEq(t, weather, a.Content)
	}
	names := func(result json.RawMessage) string {
		var list struct{ Tools []json.RawMessage }
		require.NoError(t, json.Unmarshal(result, &list))
		require.Len(t, list.Tools, ownTools)
		text, err := json.Marshal(list.Tools)
		require.NoError(t, err)
		return string(text)
	}
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			h := startHost(t, bin, home)
			hello := h.initialize(version)
			require.Equal(t, version, hello.ProtocolVersion)
			require.Equal(t, "x402-wallet", hello.ServerInfo.Name)
			require.Contains(t, hello.Capabilities, "tools")
			require.Less(t, len(hello.Instructions), 1000)
			lists = append(lists, names(h.ask(1, "tools/list", nil)))
			paidFor(t, h.tool(h.ask("pay", "tools/call", toolCall("x402_pay", buy))))
			h.ask(2, "ping", nil)
			require.NoError(t, h.stdin.Close())
			h.end(10 * time.Second)
		})
	}
	t.Run(newest, func(t *testing.T) {
		h := startHost(t, bin, home)
		with := func(params map[string]any) map[string]any {
			params = maps.Clone(params)
			if params == nil {
				params = map[string]any{}
			}
			params["_meta"] = map[string]any{
				"io.modelcontextprotocol/protocolVersion":    newest,
				"io.modelcontextprotocol/clientCapabilities": map[string]any{},
				"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
			}
			return params
		}
		var known struct {
			SupportedVersions []string
			Instructions      string
			ResultType        string
		}
		require.NoError(t, json.Unmarshal(h.ask(1, "server/discover", with(nil)), &known))
		for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", newest} {
			t.Run(version, func(t *testing.T) {
				require.Contains(t, known.SupportedVersions, version)
			})
		}
		require.NotEmpty(t, known.Instructions)
		lists = append(lists, names(h.ask(2, "tools/list", with(nil))))
		result := h.ask(3, "tools/call", with(toolCall("x402_pay", buy)))
		paidFor(t, h.tool(result))
		require.Contains(t, string(result), `"resultType":"complete"`)
		newest := with(toolCall("x402_history", map[string]any{"limit": 1}))
		require.Empty(t, h.tool(h.ask(4, "tools/call", newest)).Error)
	})
	for _, list := range lists[1:] {
		require.Equal(t, lists[0], list, "every client sees the same tools")
	}
	world.AssertPaid(t, 5, x402test.Payment{Payer: home.EVM, Path: "/weather"})

	t.Run("a version that never was", func(t *testing.T) {
		require.Equal(t, "2025-11-25", startHost(t, bin, home).initialize("1999-01-01").ProtocolVersion)
	})
	t.Run("no handshake", func(t *testing.T) {
		h := startHost(t, bin, home)
		h.send(1, "tools/list", nil)
		require.Equal(t, -32600, h.answer(1).Error.Code)
	})
}

// The old name of a tool is answered and not listed; init may run while the server does.
func TestOldNameAndLateInit(t *testing.T) {
	world := x402test.New(t)
	bin, home := testworld.Build(t), testworld.NewHome(t, "")
	given := filepath.Join(home.User, "given.toml")
	writePrivate(t, given, world.WalletConfig())

	h := startHost(t, bin, home)
	h.initialize(protocolVersion)
	setup := func(id any) (s struct {
		StructuredContent struct {
			Ready, Locked bool
			Addresses     struct{ Solana, EVM string }
			NextSteps     []string
		}
	}) {
		require.NoError(t,
			json.Unmarshal(h.ask(id, "tools/call", toolCall("x402_setup_agent", map[string]any{})), &s))
		return s
	}
	before := setup(1).StructuredContent
	require.False(t, before.Ready)
	require.Contains(t, strings.Join(before.NextSteps, " "), "x402-wallet init")
	require.Equal(t, "WALLET_NOT_FOUND",
		h.tool(h.ask(2, "tools/call", toolCall("x402_transaction_history", nil))).Error)

	runWallet(t, home, bin, nil, "init", "--passphrase-file", home.PassphraseFile, "--config", given,
		"--json")
	after := setup(3).StructuredContent
	require.False(t, after.Ready, "it has no money")
	require.NotEmpty(t, after.Addresses.EVM)
	world.Fund(t, after.Addresses.EVM, "1.00")
	require.True(t, setup("funded").StructuredContent.Ready)
	require.Equal(t, "paid",
		h.tool(h.ask(4, "tools/call", toolCall("x402_pay", map[string]any{"url": world.SellerURL +
			"/weather"}))).Status)

	require.JSONEq(t, string(h.ask(5, "tools/call", toolCall("x402_history", nil))),
		string(h.ask(6, "tools/call", toolCall("x402_transaction_history", nil))))
	require.NotContains(t, string(h.ask(7, "tools/list", nil)), "x402_transaction_history")
}
