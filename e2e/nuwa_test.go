package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// nuwa is the npm servers of @nuwa-ai/payment-kit 0.7.0, unmodified, on a simulated Rooch node that
// verifies transactions and claims.
type nuwa struct {
	t                *testing.T
	Rooch, MCP, HTTP string
	lose             atomic.Bool // the next answer to a call is lost
	doors            []string
}

func startNuwa(t *testing.T) *nuwa {
	n := &nuwa{t: t}
	cmd := exec.Command("node", "lab/nuwa/up.mjs")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	log := &tail{}
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		late := time.AfterFunc(stopWait, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
		if t.Failed() {
			t.Logf("the lab's log:\n%s", log)
		}
	})
	late := time.AfterFunc(startWait, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	late.Stop()
	require.NoError(t, err, "%s; run e2e/lab/prep.sh first", log)
	require.NoError(t, json.Unmarshal(line, n))
	n.MCP, n.HTTP = n.door(n.MCP), n.door(n.HTTP)
	return n
}

// door is a proxy before a server, which can lose what the server answered.
func (n *nuwa) door(behind string) string {
	at, err := url.Parse(behind)
	require.NoError(n.t, err)
	n.doors = append(n.doors, behind)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: at.Scheme, Host: at.Host})
		},
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Context().Value(lost{}) == nil {
				return nil
			}
			_, _ = io.Copy(io.Discard, r.Body) // it has served
			return errors.New("lost")
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		isCall := bytes.Contains(body, []byte(`"echo"`)) || strings.HasPrefix(r.URL.Path, "/api/")
		if isCall && n.lose.CompareAndSwap(true, false) {
			r = r.WithContext(context.WithValue(r.Context(), lost{}, true))
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	n.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL + at.Path
}

type lost struct{}

func (n *nuwa) post(path string, body any) {
	n.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(n.t, err)
	answer, err := http.Post(n.Rooch+path, "application/json", bytes.NewReader(text))
	require.NoError(n.t, err)
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	require.NoError(n.t, err)
	require.NotContains(n.t, string(said), `"error"`)
}

// claimed is what the chain lets each payee have taken, by channel.
func (n *nuwa) claimed(id string) string {
	answer, err := http.Get(n.Rooch + "admin/state")
	require.NoError(n.t, err)
	defer answer.Body.Close()
	var state struct {
		Channels []struct {
			ID   string `json:"id"`
			Subs map[string]struct {
				Claimed string `json:"claimed"`
			} `json:"subs"`
		} `json:"channels"`
	}
	require.NoError(n.t, json.NewDecoder(answer.Body).Decode(&state))
	for _, c := range state.Channels {
		if c.ID == id {
			return c.Subs["key-1"].Claimed
		}
	}
	return ""
}

// claim has the MCP server bring the vouchers it has to the chain.
func (n *nuwa) claim(id string) {
	ctx, cancel := context.WithTimeout(n.t.Context(), 20*time.Second)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "owner"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: n.doors[0]}, nil)
	require.NoError(n.t, err)
	defer session.Close()
	_, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "nuwa.admin.claimTrigger",
		Arguments: map[string]any{"channelId": id}})
	require.NoError(n.t, err)
}

// accept approves whatever the wallet asks its person.
func accept(method string, _ json.RawMessage) (any, error) {
	if method != "elicitation/create" {
		return nil, errors.New("not asked")
	}
	return map[string]any{"action": "accept", "content": map[string]any{}}, nil
}

func TestNuwa(t *testing.T) {
	bin := testworld.Build(t)
	n := startNuwa(t)
	host := func(raw string) string { at, _ := url.Parse(raw); return at.Host }
	const payer = "did:rooch:rooch19gqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqnvn7eg" // 0x2a00…
	home := testworld.NewHome(t, fmt.Sprintf(`
[budget]
session = "5.00"
[policy]
loopback = [%q, %q, %q]
[networks."rooch:local"]
rpc = %q
[channel]
did = %q
[servers.tools]
url = %q
channel = true
[servers.pages]
url = %q
`, host(n.MCP), host(n.HTTP), host(n.Rooch), n.Rooch, payer, n.MCP, n.HTTP+"/api"))
	n.post("admin/did", map[string]any{"did": payer,
		"vms": []any{map[string]string{"fragment": "key-1", "type": "Ed25519VerificationKey2020",
			"publicKeyMultibase": "z" + home.Solana}}})
	n.post("admin/hub", map[string]any{"did": payer, "asset": "0x3::gas_coin::RGas", "amount": "10000000000"})
	options := WalletOptions{Capabilities: map[string]any{"elicitation": map[string]any{}}, OnRequest: accept}

	for _, over := range []struct {
		name, server string
		echo, pricey map[string]any
		tool         string
	}{
		{name: "mcp", server: "tools", tool: "x402_call_tool", echo: map[string]any{"server": "tools",
			"tool": "echo"},
			pricey: map[string]any{"server": "tools", "tool": "pricey", "maxAmount": "$0.01"}},
		{name: "http", server: "pages", tool: "x402_pay", echo: map[string]any{"url": n.HTTP +
			"/api/echo?q="}},
	} {
		t.Run(over.name, func(t *testing.T) {
			w := StartWalletWith(t, bin, home, options)
			call := func(tool string, args map[string]any) (map[string]any, Result) {
				r, err := w.Call(t.Context(), tool, args)
				require.NoError(t, err)
				var out map[string]any
				require.NoError(t, json.Unmarshal(r.Structured, &out), r.Text)
				return out, r
			}
			echo := func(i int) (map[string]any, Result) {
				args := map[string]any{}
				for k, v := range over.echo {
					args[k] = v
				}
				if over.name == "mcp" {
					args["arguments"] = map[string]any{"text": fmt.Sprint(i)}
				} else {
					args["url"] = fmt.Sprint(args["url"], i)
				}
				return call(over.tool, args)
			}
			paid := func(i int) {
				t.Helper()
				out, r := echo(i)
				require.Equal(t, "paid", out["status"], r.Text)
				require.Equal(t, "10000000", out["amountPaid"])
				require.Equal(t, "$0.001", out["price"])
				require.Contains(t, out["content"], fmt.Sprint(i))
				require.NotContains(t, r.Text, "nuwa:payment")
			}
			status := func() (s struct {
				ChannelID, Promised, Claimed string
				Nonce                        uint64
				Delivered                    bool
			}) {
				runWallet(t, home, bin, &s, "channel", "show", over.server)
				return s
			}
			for i := range 5 {
				if i == 3 { // the wallet dies, and another one goes on
					w.Kill()
					w = StartWalletWith(t, bin, home, options)
				}
				paid(i)
			}
			require.EqualValues(t, 5, status().Nonce)
			if over.pricey == nil {
				out, _ := call("x402_estimate_cost", map[string]any{"url": n.HTTP + "/api/echo?q=x"})
				require.Equal(t, "ESTIMATE_FAILED", out["error"], "not free: its price comes with the answer")
			}

			n.lose.Store(true) // the service serves, and proposes; the wallet never hears of it
			_, r := echo(5)
			require.True(t, r.IsError, r.Text)
			require.EqualValues(t, 5, status().Nonce)
			paid(6) // its proposal comes with the refusal of this call, which is repeated once
			require.EqualValues(t, 7, status().Nonce)

			n.post("admin/restart", map[string]string{"kind": over.name}) // its memory is gone
			paid(8)
			s := status()
			require.EqualValues(t, 8, s.Nonce)
			require.Equal(t, "80000000", s.Promised)
			require.False(t, s.Delivered, "the last voucher goes with the next call")

			if over.pricey != nil {
				out, _ := call(over.tool, over.pricey)
				require.Equal(t, "AMOUNT_EXCEEDS_MAX", out["error"])
				require.EqualValues(t, 8, status().Nonce, "nothing more was signed for")
				paid(9)
			}
			var committed struct{ Committed bool }
			runWallet(t, home, bin, &committed, "channel", "commit", over.server)
			require.True(t, committed.Committed, "the server shows the voucher, verified")
			s = status()
			require.True(t, s.Delivered)
			want := 9
			if over.name == "mcp" {
				out, r := call(over.tool, map[string]any{"server": "tools", "tool": "hello"})
				require.Equal(t, "free", out["status"], r.Text)
				_, r = call("x402_list_tools", map[string]any{"server": "tools"})
				require.Contains(t, r.Text, `"echo"`)
				require.NotContains(t, r.Text, "nuwa", "the channel's own tools and arguments are hidden")
				n.claim(s.ChannelID)
			} else {
				paid(9) // the HTTP server claims what it has when it proposes the next
			}
			// The chain verifies the signature of a claim. The server forgets one that is asked for
			// while it makes another; it claims by itself when it is paid, so it is paid again.
			promised, err := strconv.Atoi(s.Promised)
			require.NoError(t, err)
			taken := func() bool {
				for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(
					50 * time.Millisecond) {
					if claimed, _ := strconv.Atoi(n.claimed(s.ChannelID)); claimed >= promised {
						return true
					}
				}
				return false
			}
			for tries := 1; !taken(); tries++ {
				require.Less(t, tries, 16, "%s of %s is claimed", n.claimed(s.ChannelID), s.Promised)
				if tries > 5 {
					continue // it backs off for a minute from a claim that failed
				}
				want++
				paid(want)
				if over.name == "mcp" {
					runWallet(t, home, bin, &committed, "channel", "commit", over.server)
					n.claim(s.ChannelID)
				}
			}

			var sum struct {
				Transactions []struct{ Amount, Status, URL, Method string }
			}
			runWallet(t, home, bin, &sum, "history", "--limit", "100")
			calls := 0
			for _, p := range sum.Transactions {
				if p.Status == "settled" && p.Amount == "10000000" &&
					strings.Contains(p.URL,
						host(map[string]string{"mcp": n.MCP, "http": n.HTTP}[over.name])) {
					calls++
				}
			}
			require.Equal(t, want, calls, "%+v", sum)
		})
	}
}
