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
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// market is three paywalls on the ledger of a fleet, each with a home of its own, behind a proxy that gives
// them the requests in turn; and the server whose tool they sell.
type market struct {
	aFleet
	url   string // the proxy's
	user  string // whose all three are: they are paid to one address
	file  string // shop.toml
	walls []*stall
	turn  atomic.Int64

	runs  atomic.Int64  // of the tool
	began chan struct{} // it runs
	hold  chan struct{} // and ends when this is closed; nil: at once
}

// stall is one of the paywalls.
type stall struct {
	home string
	cmd  *exec.Cmd
	at   *url.URL
}

// newMarket starts them; facilitator is what settles for them; nil: the world's.
func newMarket(t *testing.T, hold chan struct{}, facilitator func(*sandbox.Sandbox) http.Handler) *market {
	t.Helper()
	m := &market{hold: hold, began: make(chan struct{}, 1),
		aFleet: newFleetOf(t, "1.00", "rate = 1000", "signer",
			"[budget.teams.shops]\nagents = [\"shop-*\"]\n")}
	// a login of theirs, which moves no money and sells
	login := "shops" + strings.ToLower(filepath.Base(strings.TrimSuffix(m.database(), "/")))
	pgtest.SQL(t, m.sql, "CREATE ROLE "+login+" LOGIN", "SELECT x402.let_in('"+login+"', 'team:shops')")
	settles := m.w.FacilitatorURL
	if facilitator != nil {
		server := httptest.NewServer(facilitator(m.w.Sandbox))
		t.Cleanup(server.Close)
		settles = server.URL
	}
	file := filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "url = %q\nlisten = \"127.0.0.1:0\"\n"+
		"network = %q\npay_to = %q\n[tools.search]\nprice = \"0.001\"\n[[facilitators]]\nurl = %q\n",
		m.upstream(), sandbox.EVM, m.w.PayToEVM, settles), 0o600))
	m.user, m.file = t.TempDir(), file
	for i := range 3 {
		home := m.enrolled(fmt.Sprint("shop-", i), "shops", "--url",
			strings.Replace(m.ledgerURL(), "postgres@", login+"@", 1))
		m.walls = append(m.walls, m.opens(home))
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(m.next()) },
		Transport: m, FlushInterval: -1})
	t.Cleanup(proxy.Close)
	m.url = proxy.URL + "/mcp"
	return m
}

// database is the name of the ledger's.
func (m *market) database() string {
	u, err := url.Parse(m.sql)
	require.NoError(m.t, err)
	return u.Path
}

// ledgerURL is the ledger's address as the owner's config.toml has it.
func (m *market) ledgerURL() string {
	text, err := os.ReadFile(filepath.Join(m.w.home, "config.toml"))
	require.NoError(m.t, err)
	_, rest, _ := strings.Cut(string(text), "[ledger]\nurl = \"")
	at, _, found := strings.Cut(rest, "\"")
	require.True(m.t, found)
	return at
}

// next is whose turn it is.
func (m *market) next() *url.URL { return m.walls[m.turn.Add(1)%int64(len(m.walls))].at }

// RoundTrip implements http.RoundTripper. What does not answer is said to the next, though it may have been
// heard: there are proxies that do so.
func (m *market) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for range m.walls {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		answer, err = http.DefaultTransport.RoundTrip(again)
		if err == nil {
			return answer, nil
		}
		r.URL.Host = m.next().Host
	}
	return nil, err
}

// upstream serves the tool, and counts its runs.
func (m *market) upstream() string {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			n := m.runs.Add(1)
			select {
			case m.began <- struct{}{}:
			default:
			}
			if m.hold != nil {
				select {
				case <-m.hold:
				case <-ctx.Done():
				}
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{
				Text: fmt.Sprint("sunny, run ", n)}}}, nil
		})
	at := httptest.NewServer(testworld.Streamable(m.t, server, nil))
	m.t.Cleanup(at.Close)
	return at.URL
}

// opens starts a paywall.
func (m *market) opens(home string) *stall {
	m.t.Helper()
	program, env := served(m.t, []string{"X402_WALLET_HOME=" + home, "HOME=" + m.user, "LOG_LEVEL=info"})
	cmd := exec.CommandContext(m.t.Context(), program, "paywall", "--config", m.file)
	cmd.Env = env
	stderr, err := cmd.StderrPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, cmd.Start())
	m.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	s := &stall{home: home, cmd: cmd}
	var said strings.Builder
	lines := bufio.NewScanner(stderr)
	for s.at == nil {
		require.True(m.t, lines.Scan(), "the paywall does not serve: %s", &said)
		said.WriteString(lines.Text() + "\n")
		if _, at, found := strings.Cut(lines.Text(), "url="); found {
			s.at, err = url.Parse(strings.TrimSuffix(at, "/mcp"))
			require.NoError(m.t, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return s
}

// shows makes the call at the proxy or at one of the paywalls, with this payment (nil: none), and gives the
// JSON-RPC answer. It has no session, so each may go to another paywall.
func (m *market) shows(at string, payment json.RawMessage) (answer string, err error) {
	meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` +
		`{"name":"buyer","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`
	if payment != nil {
		meta += `,"x402/payment":` + string(payment)
	}
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, at, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{},"_meta":{`+
			meta+`}}}`))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{"Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/call", "Mcp-Name": "search"} {
		r.Header.Set(name, value)
	}
	said, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer said.Body.Close()
	text, err := io.ReadAll(said.Body)
	if err != nil {
		return "", err
	}
	if _, data, isStream := strings.Cut(string(text), "data: "); isStream {
		text = []byte(data)
	}
	return string(bytes.TrimSpace(text)), nil
}

// signs asks for the price and signs a payment of it; name is the buyer's for it.
func (m *market) signs(name string) json.RawMessage {
	m.t.Helper()
	asked, err := m.shows(m.url, nil)
	require.NoError(m.t, err)
	var said struct{ Result json.RawMessage }
	require.NoError(m.t, json.Unmarshal([]byte(asked), &said), asked)
	c, err := x402.ReadMCPChallenge(x402.MCPMessage{Result: said.Result})
	require.NoError(m.t, err)
	require.NotNil(m.t, c, asked)
	signer := testworld.NewEVMKey(m.t)
	m.w.Fund(signer.Address(), sandbox.USDC)
	asset, _ := x402.NewRegistry(nil).Named(sandbox.EVM, "")
	pays := evm.New(evm.Options{Signer: signer, RPC: map[string]string{sandbox.EVM: m.w.EVMNodeURL}})
	a, err := pays.Authorize(m.t.Context(), x402.Order{Requirement: c.Accepts[0], Asset: asset,
		Source: signer.Address(), Validity: c.Accepts[0].MaxTimeout, Now: time.Now()})
	require.NoError(m.t, err)
	var extensions map[string]json.RawMessage
	if name != "" {
		extensions = map[string]json.RawMessage{"payment-identifier": json.RawMessage(
			`{"info":{"id":"` + name + `"}}`)}
	}
	payload, err := x402.EncodePayload(c, c.Accepts[0], a.Payload, extensions)
	require.NoError(m.t, err)
	return payload
}

const buyersName = "pay_0123456789abcdef"

// earned is what a paywall's book says was sold, by state.
func (m *market) earned() (states []string) {
	m.t.Helper()
	out, _ := runs(m.t, 0, []string{"X402_WALLET_HOME=" + m.walls[1].home}, "paywall", "earnings", "--json")
	var said struct{ Sales []struct{ Status string } }
	require.NoError(m.t, json.Unmarshal([]byte(out), &said))
	for _, s := range said.Sales {
		states = append(states, s.Status)
	}
	return states
}

// One payment, shown a hundred times at once to three paywalls of one book, runs once and is settled once.
// Who named it gets what it bought, as often as they ask.
func TestAHundredCopiesAtThreePaywalls(t *testing.T) {
	t.Parallel()
	m := newMarket(t, nil, nil)
	for i, name := range []string{"", buyersName} {
		payment := m.signs(name)
		const copies = 100
		answers := make([]string, copies)
		var all sync.WaitGroup
		for n := range copies {
			all.Go(func() {
				var err error
				answers[n], err = m.shows(m.url, payment)
				if err != nil {
					answers[n] = err.Error()
				}
			})
		}
		all.Wait()
		bought := fmt.Sprint("sunny, run ", i+1)
		var sold int
		for _, answer := range answers {
			isSold := strings.Contains(answer, bought)
			if isSold {
				sold++
			}
			require.True(t, isSold || strings.Contains(answer, `"code":-32602`), answer)
		}
		if name == "" {
			require.Equal(t, 1, sold)
		}
		require.GreaterOrEqual(t, sold, 1)
		for _, w := range m.walls {
			answer, err := m.shows(w.at.String()+"/mcp", payment)
			require.NoError(t, err)
			if name == "" {
				require.Contains(t, answer, "this payment has been used")
			} else {
				require.Contains(t, answer, bought)
			}
		}
		require.EqualValues(t, i+1, m.runs.Load())
		require.Len(t, m.w.Settlements(), i+1)
	}
	require.Equal(t, []string{"settled", "settled"}, m.earned())
	ledgers, err := filepath.Glob(filepath.Join(m.walls[0].home, "*.db"))
	require.NoError(t, err)
	require.Empty(t, ledgers, "the book is the fleet's")

	runs(t, 0, append(slices.Clone(m.env), passphraseFile(t)), "pay", "--max", "0.05",
		m.w.SellerURL+"/weather")
	m.opens(m.walls[0].home) // where others have paid since, too
}

// buysAtFirst shows a payment at the first paywall, which will not live to answer; what it returns is closed
// then.
func (m *market) buysAtFirst(payment json.RawMessage) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		if answer, err := m.shows(m.walls[0].at.String()+"/mcp", payment); err == nil {
			m.t.Error("it answered: ", answer)
		}
	}()
	return ended
}

// waits waits for what comes in a moment.
func (m *market) waits(what <-chan struct{}) {
	m.t.Helper()
	select {
	case <-what:
	case <-time.After(time.Minute):
		m.t.Fatal("it does not come")
	}
}

// A paywall that is killed while the tool runs has asked for nothing, and no other runs it again.
func TestAPaywallOfThreeIsKilledWhileItRuns(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	m := newMarket(t, hold, nil)
	payment := m.signs(buyersName)
	ended := m.buysAtFirst(payment)
	m.waits(m.began)
	require.NoError(t, m.walls[0].cmd.Process.Kill())
	m.waits(ended)
	_ = m.walls[0].cmd.Wait()
	close(hold)
	for range 6 {
		answer, err := m.shows(m.url, payment)
		require.NoError(t, err)
		require.Contains(t, answer, `"code":-32602`)
	}
	require.EqualValues(t, 1, m.runs.Load())
	require.Empty(t, m.w.Settlements())
	require.Equal(t, []string{"running"}, m.earned(), "what was shown stays written down")
}

// A paywall that is killed while its facilitator settles has its money all the same, and the others' book
// says so: the chain does. The buyer gets from them what died with it.
func TestAPaywallOfThreeIsKilledWhileItIsPaid(t *testing.T) {
	t.Parallel()
	settled := make(chan struct{})
	never := make(chan struct{})
	defer close(never)
	m := newMarket(t, nil, func(s *sandbox.Sandbox) http.Handler {
		to, err := url.Parse(s.FacilitatorURL)
		require.NoError(t, err)
		return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
			ModifyResponse: func(r *http.Response) error {
				if strings.HasSuffix(r.Request.URL.Path, "/settle") {
					close(settled)
					<-never
				}
				return nil
			}}
	})
	payment := m.signs(buyersName)
	ended := m.buysAtFirst(payment)
	m.waits(settled)
	require.NoError(t, m.walls[0].cmd.Process.Kill())
	m.waits(ended)
	_ = m.walls[0].cmd.Wait()
	require.Len(t, m.w.Settlements(), 1)
	// however slow this machine is
	pgtest.SQL(t, m.sql, "UPDATE x402.sales SET updated_at = x402.ledger_now()")
	answer, err := m.shows(m.url, payment)
	require.NoError(t, err)
	require.Contains(t, answer, "is being used by another call", "it may still be at work")
	require.Equal(t, []string{"settling"}, m.earned())

	pgtest.SQL(t, m.sql, "UPDATE x402.sales SET updated_at = updated_at - 120000000") // two minutes later
	answer, err = m.shows(m.url, payment)
	require.NoError(t, err)
	require.Contains(t, answer, "sunny, run 1")
	require.Equal(t, []string{"settled"}, m.earned())
	require.EqualValues(t, 1, m.runs.Load())
	require.Len(t, m.w.Settlements(), 1)
}
