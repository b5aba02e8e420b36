package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

const (
	inspectorOK      = 0
	inspectorIsError = 5 // the tool answered an error
)

// inspect runs the MCP inspector against a server: a command with its environment, or a URL. Like the lab it
// has to be prepared, and is never skipped.
func inspect(t *testing.T, home testworld.Home, code int, server, args []string) (stdout []byte,
	stderr string) {
	t.Helper()
	const set = "lab/inspector"
	requirePrepared(t, set)
	ctx, cancel := context.WithTimeout(t.Context(), testlab.OpWait)
	defer cancel()
	command := []string{filepath.Join(set, "node_modules/.bin/mcp-inspector"), "--cli"}
	cmd := exec.CommandContext(ctx, "node", slices.Concat(command, server, args)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home.User, "NO_COLOR=1", "NODE_NO_WARNINGS=1"}
	cmd.WaitDelay = testlab.StopWait
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s%s", &out, &log)
	return out.Bytes(), log.String()
}

type toolNames struct{ Tools []struct{ Name string } }

// listed are the tools that the wallet lists (tools.TestGoldenTools), in their order.
func listed(t *testing.T) []struct{ Name string } {
	text := must.Get(os.ReadFile("../tools/testdata/tools.golden.json"))(t)
	list := must.JSON[toolNames](text)(t)
	return list.Tools
}

// The MCP project's own inspector, in both eras, at a wallet of its own and at a service, through the relay
// and over HTTP: it lists the tools, pays, and reads what it bought; at its own wallet it also finds nothing
// in the schemas that some host could not use, and checks every answer against them.
func TestMCPInspector(t *testing.T) {
	world, bin, _ := play(t, x402test.Options{})
	token := "x402w_" + strings.Repeat("i", 43)
	home := testworld.NewHome(t, world.WalletConfig()+
		fmt.Sprintf("\n[agents.inspector]\ntoken = %q\n", callers.TokenHash(token)))
	world.Fund(t, home.EVM, "10.00")
	service := testworld.StartService(t, bin, home.Env(), "--http", "127.0.0.1:0")
	paid := 0
	for _, way := range []struct {
		name   string
		server []string
	}{
		{"own", []string{"-e", "X402_WALLET_HOME=" + home.Dir, "-e", "X402_WALLET_PASSPHRASE_FILE=" +
			home.PassphraseFile, "-e", "LOG_LEVEL=error", bin, "mcp"}},
		{"relay", []string{"-e", "X402_WALLET_SERVICE=" + service.Socket, "-e", "X402_WALLET_TOKEN=" + token,
			"-e", "X402_WALLET_HOME=" + t.TempDir(), "-e", "LOG_LEVEL=error", bin, "mcp"}},
		{"HTTP", []string{service.URL, "--transport", "http", "--header", "Authorization: Bearer " + token}},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(way.name+" "+era, func(t *testing.T) {
				paid++
				inspectWallet(t, world, home, way.server, era, url.QueryEscape(way.name+era), paid,
					way.name == "own")
			})
		}
	}
}

func inspectWallet(t *testing.T, world *x402test.Sandbox, home testworld.Home, server []string, era,
	query string, settled int, whole bool) {
	// the inspector may kill the wallet before it noted that its answer was written
	url := "url=" + world.SellerURL + "/weather?" + query
	run := func(code int, into any, args ...string) string {
		out, log := inspect(t, home, code, server, append([]string{"--protocol-era", era}, args...))
		require.NoError(t, json.Unmarshal(out, into), "%s", out)
		return log
	}
	var list toolNames
	complaints := run(inspectorOK, &list, "--method", "tools/list", "--strict")
	require.Equal(t, listed(t), list.Tools)
	require.Empty(t, complaints, "the schemas are not portable")

	var paid, refused struct {
		IsError           bool
		StructuredContent answer
	}
	run(inspectorOK, &paid, "--method", "tools/call", "--tool-name", "x402_pay", "--tool-arg", url)
	require.Equal(t, "paid", paid.StructuredContent.Status)
	require.JSONEq(t, weather, paid.StructuredContent.Content)
	world.AssertPaid(t, settled, x402test.Payment{Payer: home.EVM, Path: "/weather"})

	var content struct{ Contents []struct{ Text string } }
	run(inspectorOK, &content, "--method", "resources/read", "--uri", "x402://payments/"+
		paid.StructuredContent.PaymentID+"/content")
	require.JSONEq(t, weather, content.Contents[0].Text)
	if !whole { // the rest is the same server, and each of these starts node
		return
	}

	run(inspectorIsError, &refused, "--method", "tools/call", "--tool-name", "x402_pay", "--tool-arg",
		url, "--tool-arg", `maxAmount="999"`)
	require.Equal(t, "AMOUNT_EXCEEDS_MAX", refused.StructuredContent.Error)

	run(inspectorOK, &content, "--method", "resources/read", "--uri", "x402://status")
	require.Contains(t, content.Contents[0].Text, `"ready":true`)
	var prompt struct {
		Messages []struct{ Content struct{ Text string } }
	}
	run(inspectorOK, &prompt, "--method", "prompts/get", "--prompt-name", "spending-report",
		"--prompt-args", "since=2026-01-31")
	require.Contains(t, prompt.Messages[0].Content.Text, "2026-01-31")
}

// requirePrepared fails where an npm set of the lab is not installed as its lock file says: nothing is
// skipped.
func requirePrepared(t *testing.T, set string) {
	t.Helper()
	lock := must.Get(os.ReadFile(filepath.Join(set, "package-lock.json")))(t)
	prepared, err := os.ReadFile(filepath.Join(set, "node_modules", ".prepared"))
	require.NoError(t, err, "run make test (or e2e/lab/prep.sh) first")
	require.True(t, bytes.Equal(lock, prepared), "run make test (or e2e/lab/prep.sh) again")
}

func play(t *testing.T, o x402test.Options) (*x402test.Sandbox, string, testworld.Home) {
	world, bin := x402test.New(t, o), testworld.Build(t)
	home := testworld.NewHome(t, world.WalletConfig())
	world.Fund(t, home.EVM, "10.00")
	return world, bin, home
}

const weather = `{"city":"Lisbon","celsius":21,"sky":"clear"}`

// ownTools is how many tools the wallet has by itself.
const ownTools = 12

const newest = testworld.Newest

// Every protocol there is, on the same binary: the list of tools, and a payment.
func TestProtocolEras(t *testing.T) {
	world, bin, home := play(t, x402test.Options{})
	url := world.SellerURL + "/weather"
	var lists []string
	paidFor := func(t *testing.T, a answer) {
		require.Equal(t, "paid", a.Status, "%+v", a)
		require.JSONEq(t, weather, a.Content)
	}
	names := func(result json.RawMessage) string {
		list := must.JSON[struct{ Tools []json.RawMessage }](result)(t)
		require.Len(t, list.Tools, ownTools)
		return string(must.Get(json.Marshal(list.Tools))(t))
	}
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", protocolVersion} {
		t.Run(version, func(t *testing.T) {
			w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: version})
			hello := helloOf(t, w)
			require.Equal(t, version, hello.ProtocolVersion)
			require.Equal(t, "x402-wallet", hello.ServerInfo.Name)
			require.Contains(t, hello.Capabilities, "tools")
			require.Less(t, len(hello.Instructions), 1000)
			lists = append(lists, names(request(t, w, "tools/list", nil)))
			paidFor(t, payFor(t, w, url))
			request(t, w, "ping", nil)
			require.NoError(t, w.Close())
		})
	}
	t.Run(newest, func(t *testing.T) {
		w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: newest})
		with := func(name string, arguments map[string]any) map[string]any {
			return map[string]any{"name": name, "arguments": arguments, "_meta": map[string]any{
				"io.modelcontextprotocol/protocolVersion":    newest,
				"io.modelcontextprotocol/clientCapabilities": map[string]any{},
				"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
			}}
		}
		known := must.JSON[struct {
			SupportedVersions []string
			Instructions      string
		}](request(t, w, "server/discover", with("", nil)))(t)
		require.Subset(t, known.SupportedVersions,
			[]string{"2024-11-05", "2025-03-26", "2025-06-18", protocolVersion, newest})
		require.NotEmpty(t, known.Instructions)
		lists = append(lists, names(request(t, w, "tools/list", with("", nil))))
		result := request(t, w, "tools/call", with("x402_pay", map[string]any{"url": url}))
		paidFor(t, answerIn(t, result))
		require.Contains(t, string(result), `"resultType":"complete"`)
		result = request(t, w, "tools/call", with("x402_history", map[string]any{"limit": 1}))
		require.Empty(t, answerIn(t, result).Error)
	})
	for _, list := range lists[1:] {
		require.Equal(t, lists[0], list, "every client sees the same tools")
	}
	world.AssertPaid(t, 5, x402test.Payment{Payer: home.EVM, Path: "/weather"})

	t.Run("a version that never was", func(t *testing.T) {
		w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: "1999-01-01"})
		require.Equal(t, protocolVersion, helloOf(t, w).ProtocolVersion)
	})
	t.Run("no handshake", func(t *testing.T) {
		w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: newest})
		_, err := w.Request(t.Context(), "tools/list", nil)
		var refused *testworld.RPCError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, -32600, refused.Code)
	})
}

type hello struct {
	ProtocolVersion, Instructions string
	Capabilities                  map[string]any
	ServerInfo                    struct{ Name, Version string }
}

func helloOf(t *testing.T, w *Wallet) (h hello) {
	t.Helper()
	require.NoError(t, json.Unmarshal(w.Initialize, &h))
	return h
}

func request(t *testing.T, w *Wallet, method string, params any) json.RawMessage {
	t.Helper()
	result, err := w.Request(t.Context(), method, params)
	require.NoError(t, err, w.Stderr())
	return result
}

func answerIn(t *testing.T, result json.RawMessage) (a answer) {
	t.Helper()
	r := must.JSON[struct{ StructuredContent answer }](result)(t)
	return r.StructuredContent
}

// The old name of a tool is answered and not listed; init may run while the server does.
func TestOldNameAndLateInit(t *testing.T) {
	world := x402test.New(t)
	bin, home := testworld.Build(t), testworld.NewHome(t, "")
	given := filepath.Join(home.User, "given.toml")
	writePrivate(t, given, world.WalletConfig())

	w := testworld.StartWallet(t, bin, home)
	setup := func() (s struct {
		Ready, Locked bool
		Addresses     struct{ Solana, EVM string }
		NextSteps     []string
	}) {
		r := must.Get(w.Call(t.Context(), "x402_setup_agent", map[string]any{}))(t)
		require.NoError(t, json.Unmarshal(r.Structured, &s))
		return s
	}
	before := setup()
	require.False(t, before.Ready)
	require.Contains(t, strings.Join(before.NextSteps, " "), "x402-wallet init")
	require.Equal(t, "WALLET_NOT_FOUND", call(t, w, "x402_transaction_history", nil).Error)

	runWallet(t, home, bin, nil, "init", "--passphrase-file", home.PassphraseFile, "--config", given,
		"--json")
	after := setup()
	require.False(t, after.Ready, "it has no money")
	require.NotEmpty(t, after.Addresses.EVM)
	world.Fund(t, after.Addresses.EVM, "1.00")
	require.True(t, setup().Ready)
	require.Equal(t, "paid", payFor(t, w, world.SellerURL+"/weather").Status)

	list := must.Get(w.Call(t.Context(), "x402_history", nil))(t)
	require.JSONEq(t, list.Text, must.Get(w.Call(t.Context(), "x402_transaction_history", nil))(t).Text)
	require.NotContains(t, string(request(t, w, "tools/list", nil)), "x402_transaction_history")
}
