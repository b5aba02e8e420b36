package tools

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
	"x402-wallet/transport"
)

// BenchmarkMounted: one paid call of a mounted tool as its host sees it, less what the server took: two exchanges with it over
// loopback, the chain read, three durable records, one signature (goal ≤ 3 ms).
func BenchmarkMounted(b *testing.B) {
	w := newWorld(b, rules{})
	w.wallet.Engine.Rules.Rate, w.wallet.Engine.Rules.Session = 1<<40, nil
	w.wallet.Engine.Rules.Day, w.wallet.Engine.Rules.Month = 1<<60, 1<<60
	_, onEVM := w.keys.Addresses()
	w.Fund(onEVM, 1_000_000*sandbox.USDC)
	var n atomic.Int64
	says := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(rw, `{"success":true,"transaction":"0x%064x","network":"eip155:84532","payer":%q}`, n.Add(1), onEVM)
	}))
	b.Cleanup(says.Close)
	server := &sandbox.MCP{Facilitator: says.URL, PayTo: w.PayToEVM, Dialect: "result"}
	var theirs atomic.Int64
	at := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		server.ServeHTTP(rw, r)
		theirs.Add(int64(time.Since(begin)))
	}))
	b.Cleanup(at.Close)
	w.sells(b, map[string]transport.Server{"shop": {URL: at.URL + "/mcp"}}, strings.TrimPrefix(at.URL, "http://"))
	w.wallet.Mounts = []string{"shop"}
	h := w.hosts(b, w.server(), "2025-11-25")
	require.Contains(b, h.tools(), "shop__paid")
	var all []time.Duration
	for i := 0; b.Loop(); i++ {
		before, begin := theirs.Load(), time.Now()
		r, err := h.CallTool(b.Context(), &mcp.CallToolParams{Name: "shop__paid", Arguments: map[string]any{"q": i}})
		took := time.Since(begin) - time.Duration(theirs.Load()-before)
		require.NoError(b, err)
		require.False(b, r.IsError, "%v", r.Content[0])
		all = append(all, took)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-p50")
}
