//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
)

// The real program over stdio, its wallet locked: the client opens a page for its person, and what
// is typed there unlocks the wallet and is in no message.
func TestUnlockedOnAPageOverStdio(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"2025-11-25", "2026-07-28"} {
		w, env := household(t, sandbox.Options{}, sandbox.Rules{})
		cmd := command(t, append(env, "LOG_LEVEL=debug"), "mcp")
		var log, wire strings.Builder
		cmd.Stderr = &log
		asked := 0
		pages := &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: pages},
			ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked++
				post, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Params.URL,
					strings.NewReader(url.Values{"passphrase": {testPassphrase}}.Encode()))
				if err != nil {
					return nil, err
				}
				post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				post.Header.Set("Origin", "http://"+post.Host)
				answer, err := http.DefaultClient.Do(post)
				if err != nil {
					return nil, err
				}
				return &mcp.ElicitResult{Action: "accept"}, answer.Body.Close()
			},
		})
		session := must.Get(client.Connect(t.Context(),
			&mcp.LoggingTransport{Transport: &mcp.CommandTransport{Command: cmd}, Writer: &wire},
			&mcp.ClientSessionOptions{ProtocolVersion: era}))(t)
		pay := func() map[string]any {
			out := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x402_pay",
				Arguments: map[string]any{"url": w.SellerURL + "/weather"}}))(t)
			return out.StructuredContent.(map[string]any)
		}
		require.Equal(t, "paid", pay()["status"], era)
		require.Equal(t, "paid", pay()["status"], era)
		require.Equal(t, 1, asked, era)
		require.NoError(t, session.Close())
		require.NotContains(t, log.String()+wire.String(), testPassphrase)
		require.Len(t, w.Settlements(), 2)
	}
}

func TestLockReachesEveryProcess(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	a := serve(t, append(env, passphraseFile(t))...)
	setup := func() string { return a.call("x402_setup_agent", `{}`) }
	require.Contains(t, setup(), `"locked":true`)
	require.Contains(t, a.call("x402_pay", `{"url":"`+w.SellerURL+`/weather"}`), `"status":"paid"`)
	require.Contains(t, setup(), `"locked":false`)
	sit(t, nil, env, "lock").ends(0)
	require.Contains(t, setup(), `"locked":true`)
}

// An agent with a shell writes a signer of its own into config.toml: its program is never started, its
// address is shown to nobody who might send money there, and nothing is paid.
func TestASignerThatNobodySealed(t *testing.T) {
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	dir := t.TempDir()
	program, started := filepath.Join(dir, "sign"), filepath.Join(dir, "started")
	childtest.Write(t, program, "touch "+started)
	key := must.Get(crypto.GenerateKey())(t)
	theirs := crypto.PubkeyToAddress(key.PublicKey).Hex()
	rules := w.configText(t)
	w.setConfig(t, rules+"\n[signers.evil]\nkind = \"command\"\nchain = \"evm\"\naddress = \""+theirs+
		"\"\ncommand = [\""+program+"\"]\n")
	for _, c := range []struct {
		code int
		args []string
	}{
		{4, []string{"address"}}, {4, []string{"signer"}}, {4, []string{"signer", "test", "evil"}},
		{1, []string{"doctor"}}, {0, []string{"balance"}}, {4, []string{"pay", "--json",
			w.SellerURL + "/weather"}},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			out, problems := runs(t, c.code, env, c.args...)
			require.NotContains(t, out+problems, theirs)
			if c.code == 4 {
				require.Contains(t, out, "POLICY_UNSEALED")
			}
			require.NoFileExists(t, started)
		})
	}
	w.setConfig(t, rules)
	runs(t, 0, env, "pay", "--json", w.SellerURL+"/weather")
	out, _ := runs(t, 0, env, "signer")
	require.Contains(t, out, w.evm)
}

// An unlock agent that began with other signers than the rules have now signs nothing: it would be out of
// another account than the one that is paid from.
func TestAnUnlockAgentKnowsItsSigners(t *testing.T) {
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	pass := passphraseFile(t)
	runs(t, 0, append(env, pass), "unlock", "--passphrase-file", pass[len("X402_WALLET_PASSPHRASE_FILE="):])
	defer runs(t, 0, env, "lock")
	runs(t, 0, env, "pay", "--json", w.SellerURL+"/weather")
	key := must.Get(crypto.GenerateKey())(t)
	address := crypto.PubkeyToAddress(key.PublicKey).Hex()
	w.setConfig(t, w.configText(t)+"\n[signers.hsm]\nkind = \"command\"\nchain = \"evm\"\naddress = \""+
		address+"\"\ncommand = [\"/bin/false\"]\n")
	keys := must.Get(wallet.Open(w.home))(t)
	require.NoError(t, keys.Unlock(t.Context(), wallet.FromValue(testPassphrase)))
	require.NoError(t, testworld.SealHome(w.home, keys))
	require.NoError(t, keys.Close())
	w.Fund(address, sandbox.USDC)
	out, _ := runs(t, 4, env, "pay", "--json", w.SellerURL+"/weather?"+time.Now().Format("150405.000"))
	require.Contains(t, out, "WALLET_LOCKED")
	require.Contains(t, out, "other signers")
}

type mcpClient struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	from   io.ReadCloser // what out reads
	log    *bytes.Buffer // of stderr, once the program has ended
	nextID int
	leave  func() // and wait for the program's end
}

// serve starts the program as an MCP server. The environment is only what is given.
func serve(t *testing.T, env ...string) *mcpClient {
	t.Helper()
	c, ok := tryServe(t, command(t, env, "mcp"))
	require.True(t, ok, "the server did not start")
	return c
}

func tryServe(t *testing.T, cmd *exec.Cmd) (c *mcpClient, ok bool) {
	t.Helper()
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	log := &bytes.Buffer{}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	require.NoError(t, cmd.Start())
	c = &mcpClient{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out), from: out, log: log}
	c.leave = sync.OnceFunc(func() {
		in.Close()
		_ = cmd.Wait()
	})
	c.out.Buffer(nil, 1<<20)
	t.Cleanup(c.leave)
	c.send("initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if !c.out.Scan() {
		return c, false
	}
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c, true
}

func (c *mcpClient) send(method, params string) {
	c.nextID++
	fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.nextID, method, params)
}

func (c *mcpClient) hear() json.RawMessage {
	c.t.Helper()
	require.True(c.t, c.out.Scan(), "the server ended")
	var answer struct{ Result json.RawMessage }
	require.NoError(c.t, json.Unmarshal(c.out.Bytes(), &answer), "%s", c.out.Text())
	return answer.Result
}

func (c *mcpClient) ask(method, params string) json.RawMessage {
	c.t.Helper()
	c.send(method, params)
	return c.hear()
}

func (c *mcpClient) call(tool, arguments string) string {
	c.t.Helper()
	var result struct{ Content []struct{ Text string } }
	require.NoError(c.t,
		json.Unmarshal(c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments)),
			&result))
	return result.Content[0].Text
}
