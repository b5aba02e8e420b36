package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// shops are the paid MCP servers of e2e/lab/mcp, each in its way to ask, and the reference clients
// that pay such servers.
type shops struct {
	Sellers map[string]string // by dialect, "+mode" behind it: the URL of the endpoint
	Pay     string

	log, node, script string
	lab               *Lab
}

var sharedShops struct {
	once  sync.Once
	shops *shops
	stop  func()
	err   error
}

func openShops(t testing.TB, lab *Lab) *shops {
	t.Helper()
	sharedShops.once.Do(func() { sharedShops.shops, sharedShops.stop, sharedShops.err = startShops(lab) })
	require.NoError(t, sharedShops.err, "run make test (or e2e/lab/prep.sh) first")
	s := *sharedShops.shops
	s.lab = lab
	return &s
}

func startShops(lab *Lab) (*shops, func(), error) {
	dir, err := os.MkdirTemp("", "x402-shops-")
	if err != nil {
		return nil, nil, err
	}
	script, err := filepath.Abs(filepath.Join("lab", "mcp", "sellers.mjs"))
	if err != nil {
		return nil, nil, err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, nil, err
	}
	s := &shops{log: filepath.Join(dir, "log"), script: script, node: node}
	options, _ := json.Marshal(map[string]any{"facilitator": lab.Facilitators[0], "log": s.log,
		"payTo": map[string]string{"evm": lab.EVM.PayTo, "svm": lab.SVM.PayTo}})
	shop, err := testlab.Run("mcp/shop.mjs", s, string(options))
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("the shops did not open: %w", err)
	}
	return s, func() {
		shop.Stop()
		_ = os.RemoveAll(dir)
	}, nil
}

func closeShops() {
	if sharedShops.stop != nil {
		sharedShops.stop()
	}
}

func (s *shops) runs(t testing.TB, seller, tool string) (n int) {
	t.Helper()
	text := must.Get(os.ReadFile(s.log))(t)
	for line := range bytes.Lines(text) {
		e := must.JSON[struct{ Event, Seller, Tool string }](line)(t)
		if e.Event == "run" && e.Tool == tool && e.Seller == seller {
			n++
		}
	}
	return n
}

// onStdio is the command of a seller on stdio, as config.toml writes it. Its log is its own.
func (s *shops) onStdio(t testing.TB, dialect string) string {
	t.Helper()
	options := must.Get(json.Marshal(map[string]any{"dialect": dialect, "facilitator": s.lab.Facilitators[0],
		"log":   filepath.Join(t.TempDir(), "log"),
		"payTo": map[string]string{"evm": s.lab.EVM.PayTo, "svm": s.lab.SVM.PayTo}}))(t)
	return string(must.Get(json.Marshal([]string{s.node, s.script, "--stdio", string(options)}))(t))
}

func (s *shops) payAs(t testing.TB, payer, target, tool string, args map[string]any,
	more map[string]any) (paid struct {
	Challenge map[string]any
	Result    struct {
		IsError           bool
		Content           []struct{ Text string }
		StructuredContent map[string]any
		Meta              map[string]any `json:"_meta"`
	}
	Error *struct {
		Code    int
		Message string
		Data    map[string]any
	}
	Other json.RawMessage
}) {
	t.Helper()
	call := map[string]any{"payer": payer, "target": target, "tool": tool, "args": args,
		"key": s.lab.EVM.Client.Key}
	for name, value := range more {
		call[name] = value
	}
	body := must.Get(json.Marshal(call))(t)
	client := &http.Client{Timeout: testlab.OpWait}
	response := must.Get(client.Post(s.Pay, "application/json", bytes.NewReader(body)))(t)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
	require.NoError(t, json.Unmarshal(text, &paid), "%s", text)
	return paid
}

// buyer is a wallet with money that may call these sellers.
func (s *shops) buyer(t testing.TB, more string) (*Wallet, testworld.Home) {
	t.Helper()
	var all []string
	for _, at := range s.Sellers {
		all = append(all, at)
	}
	return funded(t, s.lab, ConfigOptions{Loopback: all, More: more})
}

// Every way to ask that npm's servers know is paid, over streamable HTTP; the chains' own books say
// how much.
func TestPaysForToolsInEveryDialect(t *testing.T) {
	lab := Start(t)
	s := openShops(t, lab)
	w, home := s.buyer(t, "")
	for _, dialect := range []string{"result-v2", "result-v1", "text-v2", "rpc-v2", "rpc-v1", "http-v1",
		"cloudflare", "x402-mcp", "result-v2+no-receipt"} {
		t.Run(dialect, func(t *testing.T) {
			lab, seller, args := lab.For(t), s.Sellers[dialect], map[string]any{"text": "hello " + dialect}
			name, _, _ := strings.Cut(dialect, "+")
			before, ran := lab.EVMBalance(home.EVM)+lab.SVMBalance(home.Solana, ""), s.runs(t, name, "echo")
			p := call(t, w, "x402_call_tool", map[string]any{"server": seller, "tool": "echo",
				"arguments": args, "maxAmount": "$0.01"})
			require.Empty(t, p.Error, "%+v", p)
			require.Equal(t, "paid", p.Status)
			require.Equal(t, "echo: hello "+dialect, p.Content)
			require.Equal(t, "$0.001", p.Price)
			if dialect != "result-v2+no-receipt" {
				require.NotEmpty(t, p.TransactionSignature)
			}
			require.Equal(t, uint64(1000), before-lab.EVMBalance(home.EVM)-lab.SVMBalance(home.Solana, ""))
			require.Equal(t, 1, s.runs(t, name, "echo")-ran)
			list := history(t, w)
			require.Equal(t, p.PaymentID, list[0].PaymentID)
			require.Contains(t, list[0].URL, must.Get(url.Parse(seller))(t).Host)

			dear := call(t, w, "x402_call_tool", map[string]any{"server": seller, "tool": "pricey",
				"maxAmount": "$0.01"})
			require.Equal(t, "AMOUNT_EXCEEDS_MAX", dear.Error)
			free := call(t, w, "x402_call_tool", map[string]any{"server": seller, "tool": "hello",
				"arguments": map[string]any{"name": "you"}})
			require.Equal(t, "free", free.Status, "%+v", free)
			require.Equal(t, "hello you", free.Content)
		})
	}
}

// Over stdio the owner's config says what is started; on either chain.
func TestPaysForToolsOverStdio(t *testing.T) {
	lab := Start(t)
	s := openShops(t, lab)
	for _, c := range []struct{ dialect, network string }{{"cloudflare", lab.EVM.Network},
		{"result-v2", lab.EVM.Network}, {"result-v2", lab.SVM.Network}} {
		t.Run(c.dialect, func(t *testing.T) {
			w, home := funded(t, lab, ConfigOptions{Policy: fmt.Sprintf("prefer = [%q]", c.network),
				More: "[servers.shop]\ncommand = " + s.onStdio(t, c.dialect) + "\n"})
			onEVM, onSolana := lab.EVMBalance(home.EVM), lab.SVMBalance(home.Solana, "")
			p := call(t, w, "x402_call_tool", map[string]any{"server": "shop", "tool": "echo",
				"arguments": map[string]any{"text": "a"}})
			require.Equal(t, "paid", p.Status, "%+v", p)
			require.Equal(t, "echo: a", p.Content)
			require.Equal(t, c.network, p.Network)
			spent := map[string]uint64{lab.EVM.Network: onEVM - lab.EVMBalance(home.EVM),
				lab.SVM.Network: onSolana - lab.SVMBalance(home.Solana, "")}
			want := map[string]uint64{lab.EVM.Network: 0, lab.SVM.Network: 0}
			want[c.network] = 1000
			require.Equal(t, want, spent)
		})
	}
}

// Servers that take the payment and ask again, the same or dearer, get nothing more, however often
// the call is made.
func TestToolsThatAskAgainArePaidOnce(t *testing.T) {
	lab := Start(t)
	s := openShops(t, lab)
	w, home := s.buyer(t, "")
	for _, c := range []struct {
		mode, code string
		paid       uint64
	}{{"ask-again", "PAYMENT_REJECTED", 0}, {"bait", "PRICE_CHANGED", 0}, {"take-and-ask", "PAYMENT_REJECTED",
		1000}} {
		t.Run(c.mode, func(t *testing.T) {
			before, nonces := lab.EVMBalance(home.EVM)+lab.SVMBalance(home.Solana, ""),
				len(lab.EVMSpentNonces(home.EVM))
			for range 3 {
				p := call(t, w, "x402_call_tool", map[string]any{"server": s.Sellers["result-v2+"+c.mode],
					"tool": "echo", "arguments": map[string]any{"text": c.mode}})
				if p.Error != "" {
					require.Contains(t, []string{c.code, "PAYMENT_REJECTED", "OUTCOME_UNKNOWN"}, p.Error,
						"%s: %+v", c.mode, p)
					require.True(t, p.SafeToRetry)
				} else {
					// the chain said that it was paid
					require.Equal(t, "paid_not_served", p.Status, "%s: %+v", c.mode, p)
				}
			}
			require.Equal(t, c.paid, before-lab.EVMBalance(home.EVM)-lab.SVMBalance(home.Solana, ""), c.mode)
			require.LessOrEqual(t, len(lab.EVMSpentNonces(home.EVM))-nonces, 1, c.mode)
		})
	}
	boom := call(t, w, "x402_call_tool", map[string]any{"server": s.Sellers["result-v2"], "tool": "boom"})
	require.Equal(t, "TOOL_EXECUTION_FAILED", boom.Error, "%+v", boom)
	require.NotEmpty(t, boom.PaymentID)
	require.Equal(t, "boom: the tool failed", boom.Content)
}
