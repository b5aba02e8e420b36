//go:build unix

package cli

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/otlp/otlptest"
	"x402-wallet/internal/sandbox"
)

// A paywall sells the tool "tool" of a server behind it, by the rules of a wallet's home but in one without a
// wallet. opens starts it, behind h.shop; end ends it, and gives its log.
func (h *watchedHome) opens(t *testing.T) (end func() string) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "behind", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "tool", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "fine"}}}, nil
		})
	behind := httptest.NewServer(mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(behind.Close)
	home, file := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.Mkdir(home, 0o700))
	rules, err := os.ReadFile(filepath.Join(h.home, "config.toml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(home, "config.toml"), rules, 0o600))
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "url = %q\nlisten = \"127.0.0.1:0\"\n"+
		"network = \"base-sepolia\"\npay_to = %q\n[tools.tool]\nprice = \"0.001\"\n",
		behind.URL, h.PayToEVM), 0o600))

	program, err := exec.LookPath("x402-wallet")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "paywall", "--config", file)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "LOG_LEVEL=info",
		programVariable + "=" + os.Getenv(programVariable), "X402_WALLET_HOME=" + home}
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines, address := bufio.NewScanner(stderr), regexp.MustCompile(`"url":"(http://[0-9.:]+)/mcp"`)
	var log strings.Builder
	for isOpen := false; !isOpen; {
		require.True(t, lines.Scan(), "the paywall did not start: %s", &log)
		log.WriteString(lines.Text() + "\n")
		if at := address.FindStringSubmatch(lines.Text()); at != nil {
			h.shop.leadsTo(t, at[1])
			isOpen = true
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
		}
	}()
	end = sync.OnceValue(func() string {
		_ = cmd.Process.Signal(os.Interrupt)
		<-read
		_ = cmd.Wait()
		return log.String()
	})
	t.Cleanup(func() { end() })
	return end
}

// A purchase of which buyer and seller both tell the same collector is one trace, from the agent's host to
// the seller's facilitator; and a sale has its line.
func TestASaleIsInTheTraceOfItsBuyer(t *testing.T) {
	t.Parallel()
	h := newWatchedHome(t, "pass_on = true\n")
	end := h.opens(t)
	agent := serve(t, h.env...)
	said := agent.ask("tools/call", fmt.Sprintf(`{"name":"x402_call_tool","arguments":`+
		`{"server":%q,"tool":"tool"},"_meta":{"traceparent":%q}}`, h.shop.URL+"/mcp", traceparent))
	require.Contains(t, string(said), "fine")
	agent.leave()
	log := end()

	var root, sale, sent otlptest.Span
	children := map[string]otlptest.Span{} // of the sale
	spans := h.collector.Spans(t, 1)
	for _, s := range spans {
		switch {
		case strings.HasPrefix(s.Name, "tools/call"):
			root = s
		case s.Name == "send":
			sent = s
		}
	}
	for _, s := range spans {
		if s.Name == "sale tool" && string(s.ParentSpanId) == string(sent.SpanId) {
			sale = s
		}
	}
	require.NotNil(t, root.Span)
	require.NotNil(t, sale.Span, "%v", spans)
	for _, s := range spans {
		if s.Name == "settle" || s.Name == "verify" || s.Name == "run" || s.Name == "take" {
			children[s.Name] = s
			require.Equal(t, sale.SpanId, s.ParentSpanId, s.Name)
		}
	}
	require.Len(t, children, 4)
	require.Equal(t, "delivered", attribute(sale, "x402.outcome"))
	require.Equal(t, hostsTrace, hex.EncodeToString(sale.TraceId))
	for _, s := range spans {
		if s.Name == "facilitator settle" {
			require.Equal(t, children["settle"].SpanId, s.ParentSpanId)
			require.Contains(t, h.facilitator.told(), fmt.Sprintf("00-%s-%x-01", hostsTrace, s.SpanId))
		}
	}
	line := lineOf(t, log, "sale")
	for key, want := range map[string]any{"tool": "tool", "outcome": "delivered", "state": "settled",
		"network": sandbox.EVM, "price": "0.001", "asset": "USDC", "trace": hostsTrace} {
		require.Equal(t, want, line[key], key)
	}
	require.NotContains(t, log, "sekret")
}
