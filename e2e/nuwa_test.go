package e2e

import (
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
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/formtest"
	"x402-wallet/internal/must"
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
	lab := must.Get(testlab.Run("nuwa/up.mjs", n))(t)
	t.Cleanup(func() {
		lab.Stop()
		if t.Failed() {
			t.Logf("the lab's log:\n%s", lab.Log)
		}
	})
	n.MCP, n.HTTP = n.door(n.MCP), n.door(n.HTTP)
	return n
}

// door is a proxy before a server, which can lose what the server answered.
func (n *nuwa) door(behind string) string {
	at := must.Get(url.Parse(behind))(n.t)
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
	text := must.Get(json.Marshal(body))(n.t)
	answer := must.Get(http.Post(n.Rooch+path, "application/json", bytes.NewReader(text)))(n.t)
	defer answer.Body.Close()
	require.NotContains(n.t, string(must.Get(io.ReadAll(answer.Body))(n.t)), `"error"`)
}

func (n *nuwa) claimed(id string) string {
	answer := must.Get(http.Get(n.Rooch + "admin/state"))(n.t)
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

func (n *nuwa) claim(id string) {
	ctx, cancel := context.WithTimeout(n.t.Context(), testlab.OpWait)
	defer cancel()
	session := must.Get(mcp.NewClient(&mcp.Implementation{Name: "owner"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: n.doors[0]}, nil))(n.t)
	defer session.Close()
	must.Get(session.CallTool(ctx, &mcp.CallToolParams{Name: "nuwa.admin.claimTrigger",
		Arguments: map[string]any{"channelId": id}}))(n.t)
}

func accept(method string, params json.RawMessage) (any, error) {
	if method != "elicitation/create" {
		return nil, errors.New("not asked")
	}
	return formtest.Answer(params, "accept"), nil
}

const nuwaPayer = "did:rooch:rooch19gqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqnvn7eg" // 0x2a00…

func TestNuwa(t *testing.T) {
	bin := testworld.Build(t)
	n := startNuwa(t)
	host := func(raw string) string { at, _ := url.Parse(raw); return at.Host }
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
`, host(n.MCP), host(n.HTTP), host(n.Rooch), n.Rooch, nuwaPayer, n.MCP, n.HTTP+"/api"))
	n.post("admin/did", map[string]any{"did": nuwaPayer,
		"vms": []any{map[string]string{"fragment": "key-1", "type": "Ed25519VerificationKey2020",
			"publicKeyMultibase": "z" + home.Solana}}})
	n.post("admin/hub", map[string]any{"did": nuwaPayer, "asset": "0x3::gas_coin::RGas",
		"amount": "100000000000"})
	for _, b := range []*nuwaBuyer{
		{over: "mcp", server: "tools", at: host(n.MCP)}, {over: "http", server: "pages", at: host(n.HTTP)},
	} {
		t.Run(b.over, func(t *testing.T) {
			b.t, b.nuwa, b.bin, b.home = t, n, bin, home
			b.buys()
		})
	}
}

type nuwaBuyer struct {
	*nuwa
	t                     *testing.T
	over, server, at, bin string
	home                  testworld.Home
	w                     *Wallet
}

func (b *nuwaBuyer) start() {
	b.w = testworld.StartWalletWith(b.t, b.bin, b.home, WalletOptions{OnRequest: accept,
		Capabilities: map[string]any{"elicitation": map[string]any{}}})
}

func (b *nuwaBuyer) call(tool string, args map[string]any) (map[string]any, testworld.Result) {
	r := must.Get(b.w.Call(b.t.Context(), tool, args))(b.t)
	var out map[string]any
	require.NoError(b.t, json.Unmarshal(r.Structured, &out), r.Text)
	return out, r
}

func (b *nuwaBuyer) echo(i int) (map[string]any, testworld.Result) {
	if b.over == "mcp" {
		return b.call("x402_call_tool", map[string]any{"server": "tools", "tool": "echo",
			"arguments": map[string]any{"text": fmt.Sprint(i)}})
	}
	return b.call("x402_pay", map[string]any{"url": fmt.Sprint(b.HTTP, "/api/echo?q=", i)})
}

func (b *nuwaBuyer) paid(i int) {
	b.t.Helper()
	out, r := b.echo(i)
	require.Equal(b.t, "paid", out["status"], r.Text)
	require.Equal(b.t, "10000000", out["amountPaid"])
	require.Equal(b.t, "$0.001", out["price"])
	require.Contains(b.t, out["content"], fmt.Sprint(i))
	require.NotContains(b.t, r.Text, "nuwa:payment")
}

func (b *nuwaBuyer) status() (s struct {
	ChannelID, Promised, Claimed string
	Nonce                        uint64
	Delivered                    bool
}) {
	runWallet(b.t, b.home, b.bin, &s, "channel", "show", b.server)
	return s
}

func (b *nuwaBuyer) commit() bool {
	var said struct{ Committed bool }
	runWallet(b.t, b.home, b.bin, &said, "channel", "commit", b.server)
	return said.Committed
}

// buys is a channel's life, through losses and restarts of either side.
func (b *nuwaBuyer) buys() {
	t := b.t
	b.start()
	for i := range 5 {
		if i == 3 { // the wallet dies, and another one goes on
			b.w.Kill()
			b.start()
		}
		b.paid(i)
	}
	require.EqualValues(t, 5, b.status().Nonce)
	_, r := b.call("x402_history", map[string]any{"limit": 20})
	require.Contains(t, r.Text, `"$0.003"`, "the opening's fee is the chain's estimate, and half of it more")
	require.NotContains(t, r.Text, `"$0.01"`, "and not the most that it can be")
	if b.over == "http" {
		out, _ := b.call("x402_estimate_cost", map[string]any{"url": b.HTTP + "/api/echo?q=x"})
		require.Equal(t, "ESTIMATE_FAILED", out["error"], "not free: its price comes with the answer")
	}

	b.lose.Store(true) // the service serves, and proposes; the wallet never hears of it
	_, r = b.echo(5)
	require.True(t, r.IsError, r.Text)
	require.EqualValues(t, 5, b.status().Nonce)
	b.paid(6) // its proposal comes with the refusal of this call, which is repeated once
	require.EqualValues(t, 7, b.status().Nonce)

	b.post("admin/restart", map[string]string{"kind": b.over}) // its memory is gone
	b.paid(8)
	s := b.status()
	require.EqualValues(t, 8, s.Nonce)
	require.Equal(t, "80000000", s.Promised)
	require.False(t, s.Delivered, "the last voucher goes with the next call")

	if b.over == "mcp" {
		out, _ := b.call("x402_call_tool", map[string]any{"server": "tools", "tool": "pricey",
			"maxAmount": "$0.01"})
		require.Equal(t, "AMOUNT_EXCEEDS_MAX", out["error"])
		out, r := b.call("x402_call_tool", map[string]any{"server": "tools", "tool": "pricey",
			"maxAmount": "$50"})
		require.Equal(t, "BUDGET_EXCEEDED", out["error"], "an offer is cut to per_call: %s", r.Text)
		require.Contains(t, r.Text, "x402-wallet budget set per_call 50.00")
		require.EqualValues(t, 8, b.status().Nonce, "nothing more was signed for")
		b.paid(9)
	}
	require.True(t, b.commit(), "the server shows the voucher, verified")
	s = b.status()
	require.True(t, s.Delivered)
	if b.over == "mcp" {
		out, r := b.call("x402_call_tool", map[string]any{"server": "tools", "tool": "hello"})
		require.Equal(t, "free", out["status"], r.Text)
		_, r = b.call("x402_list_tools", map[string]any{"server": "tools"})
		require.Contains(t, r.Text, `"echo"`)
		require.NotContains(t, r.Text, "nuwa", "the channel's own tools and arguments are hidden")
		b.claim(s.ChannelID)
	} else {
		b.paid(9) // the HTTP server claims what it has when it proposes the next
	}
	b.settled(b.takes(9, s.ChannelID, s.Promised))
}

// takes waits until the chain, which verifies a claim's signature, has given the server what it was
// promised. The server forgets a claim that is asked for while it makes another; it claims by
// itself when it is paid, so it is paid again: how many calls were paid then is returned.
func (b *nuwaBuyer) takes(calls int, channel, promised string) int {
	want := must.Get(strconv.Atoi(promised))(b.t)
	taken := func() bool {
		for range 100 {
			if claimed, _ := strconv.Atoi(b.claimed(channel)); claimed >= want {
				return true
			}
			time.Sleep(50 * time.Millisecond)
		}
		return false
	}
	for tries := 1; !taken(); tries++ {
		require.Less(b.t, tries, 16, "%s of %s is claimed", b.claimed(channel), promised)
		if tries > 5 {
			continue // it backs off for a minute from a claim that failed
		}
		calls++
		b.paid(calls)
		if b.over == "mcp" {
			b.commit()
			b.claim(channel)
		}
	}
	return calls
}

// settled compares the ledger with the calls that were paid.
func (b *nuwaBuyer) settled(want int) {
	var sum struct {
		Transactions []struct{ Price, Status, URL string }
	}
	runWallet(b.t, b.home, b.bin, &sum, "history", "--limit", "100")
	calls := 0
	for _, p := range sum.Transactions {
		if p.Status == "settled" && p.Price == "$0.001" && strings.Contains(p.URL, b.at) {
			calls++
		}
	}
	require.Equal(b.t, want, calls, "%+v", sum)
}
