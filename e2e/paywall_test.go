package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
	"x402-wallet/x402test"
)

// behindEnv makes this test binary an MCP server that knows nothing of payments. Its value is a file
// that each run adds a line to; a run waits for as long as there is one of that name and ".hold".
const behindEnv = "X402_TEST_BEHIND"

func behind(runs string) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather"}, nil)
	for _, name := range []string{"search", "hello"} {
		server.AddTool(&mcp.Tool{Name: name, Description: "Weather",
			InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				file, err := os.OpenFile(runs, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					return nil, err
				}
				defer file.Close()
				_, err = fmt.Fprintln(file, name)
				for held := error(nil); held == nil; _, held = os.Stat(runs + ".hold") {
					time.Sleep(5 * time.Millisecond)
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sunny from " +
					name}}}, err
			})
	}
	server.AddResourceTemplate(
		&mcp.ResourceTemplate{Name: "archive", URITemplate: "weather://archive/{year}"},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			_, year, _ := strings.Cut(r.Params.URI, "archive/")
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI,
				Text: "rainy in " + year}}}, nil
		})
	server.AddPrompt(&mcp.Prompt{Name: "report"}, func(_ context.Context, r *mcp.GetPromptRequest) (
		*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user",
			Content: &mcp.TextContent{Text: "about " + r.Params.Arguments["city"]}}}}, nil
	})
	return server.Run(context.Background(), &mcp.StdioTransport{})
}

type shop struct {
	world      *x402test.Sandbox
	bin        string
	home       testworld.Home
	file, runs string
}

func newShop(t *testing.T, more string) *shop {
	t.Helper()
	world, bin, home := play(t, x402test.Options{})
	s := &shop{world: world, bin: bin, home: home, file: filepath.Join(t.TempDir(), "shop.toml"),
		runs: filepath.Join(t.TempDir(), "runs")}
	own := must.Get(os.Executable())(t)
	writePrivate(t, s.file,
		fmt.Sprintf("command = [\"/usr/bin/env\", %q, %q]\nnetwork = "+
			"\"base-sepolia\"\n%s[tools.search]\nprice = \"0.001\"\n", behindEnv+"="+s.runs, own, more))
	return s
}

func (s *shop) overStdio(t *testing.T) *mcp.ClientSession {
	t.Helper()
	command := s.home.Command(context.Background(), s.bin, "paywall", "--config", s.file)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	client, err := mcp.NewClient(&mcp.Implementation{Name: "buyer"}, nil).Connect(t.Context(),
		&mcp.CommandTransport{Command: command}, nil)
	require.NoError(t, err, "%s", &stderr)
	t.Cleanup(func() { client.Close() })
	return client
}

// A server that greets on stdout before it speaks MCP, behind a client that writes a line that is
// no message: neither ends the paywall.
func TestPaywallOutlivesGreetingAndMalformedLine(t *testing.T) {
	s := newShop(t, "")
	own := must.Get(os.Executable())(t)
	writePrivate(t, s.file, fmt.Sprintf("command = [\"/bin/sh\", \"-c\", %q, %q]\nnetwork = "+
		"\"base-sepolia\"\n[tools.search]\nprice = \"0.001\"\n",
		"echo starting server; exec /usr/bin/env \""+behindEnv+"="+s.runs+"\" \"$0\"", own))
	command := s.home.Command(t.Context(), s.bin, "paywall", "--config", s.file)
	stdin := must.Get(command.StdinPipe())(t)
	stdout := must.Get(command.StdoutPipe())(t)
	require.NoError(t, command.Start())
	answers := bufio.NewScanner(stdout)
	for _, exchange := range [][2]string{
		{`hello`, `"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
			`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, `"name":"weather"`},
		{`[]`, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":2,"method":"ping"}`, `"id":2,"result":{}`},
	} {
		must.Get(io.WriteString(stdin, exchange[0]+"\n"))(t)
		require.True(t, answers.Scan(), "the session ended at %s", exchange[0])
		require.Contains(t, answers.Text(), exchange[1])
	}
	require.NoError(t, stdin.Close())
	require.NoError(t, command.Wait())
}

type paywallProcess struct {
	*exec.Cmd
	url  string // of its endpoint
	log  *tail
	stop func(os.Signal) error // ends it, once
}

// startPaywall starts a paywall by a file that says where it listens, and returns when it does. The paywall
// ends with the test, which fails if it does not end well. env is added to its environment.
func startPaywall(t testing.TB, home testworld.Home, bin, file string, env ...string) *paywallProcess {
	t.Helper()
	command := home.Command(context.Background(), bin, "paywall", "--config", file)
	p := &paywallProcess{Cmd: command, log: &tail{}}
	p.Env = append(p.Env, env...)
	stderr := must.Get(p.StderrPipe())(t)
	require.NoError(t, p.Start())
	late := time.AfterFunc(testlab.StartWait, func() { _ = p.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewReader(io.TeeReader(stderr, p.log))
	for found := false; !found; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, "the paywall does not serve: %s", p.log)
		_, p.url, found = strings.Cut(strings.TrimSpace(line), "url=")
	}
	isRead := make(chan struct{})
	go func() {
		defer close(isRead)
		_, _ = io.Copy(io.Discard, lines)
	}()
	isOver := false
	p.stop = func(s os.Signal) error {
		if isOver {
			return nil
		}
		isOver = true
		_ = p.Process.Signal(s)
		late := time.AfterFunc(testlab.StopWait, func() { _ = p.Process.Kill() })
		defer late.Stop()
		<-isRead
		return p.Wait()
	}
	t.Cleanup(func() { require.NoError(t, p.stop(syscall.SIGTERM), "%s", p.log) })
	return p
}

// buys asks for the tool that costs money, and pays for it.
func (s *shop) buys(t *testing.T, client *mcp.ClientSession) *mcp.CallToolResult {
	t.Helper()
	asked := must.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"}))(t)
	return must.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "search",
		Meta: mcp.Meta{"x402/payment": signOffer(t, s.world, asked)}}))(t)
}

func signOffer(t *testing.T, world *x402test.Sandbox, asked *mcp.CallToolResult) (payment map[string]any) {
	t.Helper()
	text := must.Get(json.Marshal(asked))(t)
	c := must.Get(wire.ReadMCPChallenge(wire.MCPMessage{Result: text}))(t)
	require.NotNil(t, c, "%s", text)
	signer := testworld.NewEVMKey(t) // a buyer that is no wallet
	world.Fund(t, signer.Address(), "1.00")
	asset, _ := x402.NewRegistry(nil).Named(world.EVM, "")
	pays := evm.New(evm.Options{Signer: signer, RPC: map[string]string{world.EVM: world.EVMNodeURL}})
	a := must.Get(pays.Authorize(t.Context(), onchain.Order{Requirement: c.Accepts[0], Asset: asset,
		Source: signer.Address(), Validity: time.Minute, Now: time.Now()}))(t)
	payload := must.Get(wire.EncodePayload(c, c.Accepts[0], a.Payload, nil))(t)
	require.NoError(t, json.Unmarshal(payload, &payment))
	return payment
}

// A paywall with an explicit pay_to needs no wallet, and still keeps its book of sales in the home. Another
// home's book is refused for that address, unless the owner allows it; and a wallet that is created in that
// home keeps the book.
func TestPaywallWithoutAWallet(t *testing.T) {
	s := newShop(t, "")
	payTo := testworld.NewEVMKey(t).Address()
	text := must.Get(os.ReadFile(s.file))(t)
	writePrivate(t, s.file, "pay_to = \""+payTo+"\"\n"+string(text))
	rules := s.world.WalletConfig()
	homes := []testworld.Home{testworld.NewHome(t, ""), testworld.NewHome(t, "")}
	homes[1].User = homes[0].User
	for _, home := range homes {
		require.NoError(t, os.Mkdir(home.Dir, 0o700))
		writePrivate(t, filepath.Join(home.Dir, "config.toml"), rules)
	}

	s.home = homes[0]
	for range 2 { // both at once, on one book
		got := s.buys(t, s.overStdio(t))
		require.False(t, got.IsError, "%v", got)
	}
	require.Equal(t, payTo, s.world.Payments()[0].PayTo)
	var earned struct{ Totals map[string]string }
	runWallet(t, s.home, s.bin, &earned, "paywall", "earnings", "--json")
	require.Equal(t, map[string]string{"USDC": "0.002"}, earned.Totals)

	refused, err := homes[1].Command(t.Context(), s.bin, "paywall", "--config", s.file).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(refused), "SETUP_FAILED")
	require.Contains(t, string(refused), "X402_WALLET_HOME="+homes[0].Dir)
	writePrivate(t, s.file, "shared_pay_to = true\npay_to = \""+payTo+"\"\n"+string(text))
	s.home = homes[1]
	require.NoError(t, s.overStdio(t).Ping(t.Context(), nil))

	s.home = homes[0]
	runWallet(t, s.home, s.bin, nil, "init")
	runWallet(t, s.home, s.bin, &earned, "paywall", "earnings", "--json")
	require.Equal(t, map[string]string{"USDC": "0.002"}, earned.Totals)
}

// askingServer starts a server of the reference SDK that asks its client back.
func askingServer(t *testing.T) (url string) {
	t.Helper()
	cmd := exec.Command("node", filepath.Join("lab", "mcp", "asking.mjs"))
	stdin := must.Get(cmd.StdinPipe())(t)
	stdout := must.Get(cmd.StdoutPipe())(t)
	said := &tail{}
	cmd.Stderr = said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		late := time.AfterFunc(testlab.StopWait, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
	})
	late := time.AfterFunc(testlab.StartWait, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "run make test (or e2e/lab/prep.sh) first")
	return lines.Text()
}

// A server of the reference SDK asks its client back, on the call's stream and on the session's. Behind
// our paywall each buyer is asked what is theirs, by clients of both SDKs, while they pay and where
// it is free; and what is told of a resource arrives.
func TestReferenceServerAsksThroughThePaywall(t *testing.T) {
	s := newShop(t, "")
	writePrivate(t, s.file, fmt.Sprintf("url = %q\nlisten = \"127.0.0.1:0\"\nnetwork = \"base-sepolia\"\n"+
		"[tools.search]\nprice = \"0.001\"\n", askingServer(t)))
	endpoint := startPaywall(t, s.home, s.bin, s.file).url

	type told struct {
		Initialize, Can map[string]any
		Ask, Updated    string
	}
	heard := make(chan error, 2)
	for _, name := range []string{"Oslo", "Rome"} { // at once
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), testlab.OpWait)
			defer cancel()
			out, err := exec.CommandContext(ctx, "node", filepath.Join("lab", "mcp", "asked.mjs"),
				endpoint, name).
				Output()
			var got told
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			want := fmt.Sprintf("%[1]s of %[1]s file:///%[1]s", name)
			if err == nil && (got.Ask != want || got.Updated != "weather://today" || len(got.Can) != 3 ||
				got.Initialize["logging"] == nil) {
				err = fmt.Errorf("%s heard %s", name, out)
			}
			heard <- err
		}()
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "buyer"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"city": "Bonn"}}, nil
		},
		CreateMessageHandler: func(context.Context,
			*mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant",
				Content: &mcp.TextContent{Text: "of Bonn"}}, nil
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///Bonn"})
	session := must.Get(client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}))(t)
	defer session.Close()
	asked := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"}))(t)
	given := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search",
		Meta: mcp.Meta{"x402/payment": signOffer(t, s.world, asked)}}))(t)
	require.Equal(t, "Bonn of Bonn file:///Bonn", given.Content[0].(*mcp.TextContent).Text)
	s.world.AssertPaidOnce(t, x402test.Payment{})
	for range 2 {
		require.NoError(t, <-heard)
	}

	// of a client of 2026-07-28 it hears that it cannot be asked: it asks in another way
	since := must.Get(client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint}, nil))(t)
	defer since.Close()
	can := must.Get(since.CallTool(t.Context(), &mcp.CallToolParams{Name: "can"}))(t)
	require.False(t, strings.Contains(can.Content[0].(*mcp.TextContent).Text, "elicitation"))
}
