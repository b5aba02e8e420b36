package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/content"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/money"
)

// world is a service with two agents, a paywall, the dashboard of a wallet that was left alone, and one whose
// ledger is gone.
type world struct {
	*sandbox.Sandbox
	t   *testing.T
	bin string

	home    testworld.Home
	mcp     string                        // the service's
	shop    string                        // the paywall's
	metrics map[string]string             // by job: host:port
	agents  map[string]*mcp.ClientSession // at the service
	calls   atomic.Int64
}

const aliceDay = "0.01"

func newWorld(t *testing.T) *world {
	s := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { _ = s.Close() })
	w := &world{Sandbox: s, t: t, bin: testworld.Build(t), metrics: map[string]string{},
		agents: map[string]*mcp.ClientSession{}}
	w.sells()
	w.serves()
	w.shows("x402-left", w.leftAlone())
	gone := testworld.NewHome(t, s.Config(sandbox.Rules{}))
	w.shows("x402-gone", gone)
	require.NoError(t, os.Rename(filepath.Join(gone.Dir, history.FileName), filepath.Join(gone.Dir, "gone")))
	return w
}

func (w *world) sells() {
	w.t.Helper()
	behind := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	behind.AddTool(&mcp.Tool{Name: "weather", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sunny"}}}, nil
		})
	server := httptest.NewServer(testworld.Streamable(w.t, behind, nil))
	w.t.Cleanup(server.Close)
	home := filepath.Join(w.t.TempDir(), "shop")
	require.NoError(w.t, os.Mkdir(home, 0o700))
	require.NoError(w.t, ownfile.Write(filepath.Join(home, config.FileName),
		[]byte(w.Config(sandbox.Rules{}))))
	file := filepath.Join(w.t.TempDir(), "shop.toml")
	require.NoError(w.t, os.WriteFile(file, fmt.Appendf(nil, "url = %q\nlisten = \"127.0.0.1:0\"\n"+
		"network = %q\npay_to = %q\n[tools.weather]\nprice = \"0.002\"\n",
		server.URL, sandbox.EVM, w.PayToEVM), 0o600))
	cmd := testworld.NewHome(w.t, "").Command(w.t.Context(), w.bin, "paywall", "--config", file, "--metrics",
		"127.0.0.1:0")
	cmd.Env = append(cmd.Env, "X402_WALLET_HOME="+home)
	p := start(w.t, cmd)
	w.metrics["x402-paywall"] = p.says(`msg="metrics are served" at=http://([0-9.:]+)/metrics`)
	w.shop = p.says(`url=(http://[0-9.:]+/mcp)`)
}

func (w *world) serves() {
	w.t.Helper()
	tokens := map[string]string{}
	agents := ""
	for _, name := range []string{"alice", "bob"} {
		tokens[name] = "x402w_" + strings.Repeat(name[:1], 43)
		agents += fmt.Sprintf("[agents.%s]\ntoken = %q\n", name, callers.TokenHash(tokens[name]))
		if name == "alice" {
			agents += "day = \"" + aliceDay + "\"\n"
		}
	}
	rules := w.Config(sandbox.Rules{ApproveAbove: "0.01", Extra: agents})
	at := strings.TrimSuffix(strings.TrimPrefix(w.shop, "http://"), "/mcp")
	rules = strings.Replace(rules, "loopback = [", fmt.Sprintf("loopback = [%q, ", at), 1)
	w.home = testworld.NewHome(w.t, rules)
	w.Fund(w.home.EVM, sandbox.USDC*9/10)
	dir := must.Get(os.MkdirTemp("", "service-"))(w.t) // a test's own is too long for a socket
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := start(w.t, w.home.Command(w.t.Context(), w.bin, "serve", "--socket", filepath.Join(dir, "s"),
		"--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"))
	w.metrics["x402-wallet"] = p.says(`metrics are at http://([0-9.:]+)/metrics`)
	w.mcp = p.says(`and at (http://\S+)`)
	for name, token := range tokens {
		client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil)
		session, err := client.Connect(w.t.Context(), &mcp.StreamableClientTransport{Endpoint: w.mcp,
			HTTPClient: &http.Client{Transport: testworld.Bearer(token)}, DisableStandaloneSSE: true}, nil)
		require.NoError(w.t, err)
		w.t.Cleanup(func() { _ = session.Close() })
		w.agents[name] = session
	}
}

func (w *world) shows(job string, home testworld.Home) {
	w.t.Helper()
	p := start(w.t, home.Command(w.t.Context(), w.bin, "dashboard", "--metrics", "127.0.0.1:0"))
	w.metrics[job] = p.says(`"metrics": ?"http://([0-9.:]+)/metrics"`)
}

// leftAlone is a wallet with a payment that has had no outcome since yesterday, a question that waits since
// twenty minutes, and an account that is frozen.
func (w *world) leftAlone() testworld.Home {
	w.t.Helper()
	home := testworld.NewHome(w.t, w.Config(sandbox.Rules{}))
	past := must.Get(ledgers.Open(w.t.Context(), home.Dir, history.Options{Contents: content.Keeper{},
		Now: func() time.Time { return time.Now().Add(-20 * time.Minute) }}))(w.t)
	defer past.Close()
	must.Get(asking.Asker{Store: past}.AskApproval(w.t.Context(), history.Approval{
		Quote: [32]byte{1}, Host: "api.example", Why: "its price",
		Method: "GET", URL: "https://api.example/report", Network: sandbox.EVM, Asset: "0xasset",
		Symbol: "USDC", Amount: money.NewAmount(500_000), Price: 500_000, PayTo: "0xpayee"}))(w.t)
	require.NoError(w.t, past.Freeze(w.t.Context(), history.Freeze{Network: sandbox.EVM, Account: home.EVM,
		By: "owner", Why: "a trial"}))
	hand := must.Get(historytest.Forge(home.Dir))(w.t)
	defer hand.Close()
	yesterday := time.Now().Add(-24 * time.Hour)
	evidence := must.Get(json.Marshal(map[string]any{"expiresAt": yesterday.Add(time.Minute).UTC()}))(w.t)
	must.Get(hand.Exec(`INSERT INTO payments (id, session, state, created_at, updated_at, fingerprint, method,
		url, target, host, network, scheme, dialect, asset, symbol, amount, usd, pay_to, source, requirement,
		payload, evidence) VALUES ('old', 's', 'unknown', ?, 0, x'00', 'GET', 'https://api.example/', '',
		'api.example', ?, 'exact', 'v2', '0xa', 'USDC', '1', 1, '0xpayee', '', '{}', '{}', ?)`,
		yesterday.UnixMicro(), sandbox.EVM, string(evidence)))(w.t)
	require.NoError(w.t, hand.Recount())
	return home
}

func (w *world) call(agent, tool string, arguments map[string]any) string {
	w.t.Helper()
	answer := must.Get(w.agents[agent].CallTool(w.t.Context(),
		&mcp.CallToolParams{Name: tool, Arguments: arguments}))(w.t)
	text := must.Get(json.Marshal(answer))(w.t)
	return string(text)
}

// pays has an agent buy a path of the sandbox's seller, anew each time.
func (w *world) pays(agent, path string) string {
	w.t.Helper()
	return w.call(agent, "x402_pay", map[string]any{"url": fmt.Sprintf("%s%s?%d", w.SellerURL, path,
		w.calls.Add(1))})
}

func (w *world) shops(agent string) string {
	w.t.Helper()
	return w.call(agent, "x402_call_tool", map[string]any{"server": w.shop, "tool": "weather",
		"arguments": map[string]any{"n": w.calls.Add(1)}})
}

// fails has a party fail, whatever is bought, once or until it is seen.
func (w *world) fails(how string, buy func(), isSeen func() bool) {
	w.t.Helper()
	w.Inject(how, math.MaxInt)
	defer w.Heal()
	until(w.t, how, func() bool {
		buy()
		return isSeen == nil || isSeen()
	})
}

// crowds sends the paywall what has no place there.
func (w *world) crowds() {
	w.t.Helper()
	answer := must.Get(http.Post(w.shop, "application/json", strings.NewReader("[]")))(w.t)
	_ = answer.Body.Close()
	require.Equal(w.t, http.StatusBadRequest, answer.StatusCode)
}

func (w *world) scrape(job string) string {
	w.t.Helper()
	answer := must.Get(http.Get("http://" + w.metrics[job] + "/metrics"))(w.t)
	defer answer.Body.Close()
	require.Equal(w.t, http.StatusOK, answer.StatusCode)
	text := must.Get(io.ReadAll(answer.Body))(w.t)
	return string(text)
}
