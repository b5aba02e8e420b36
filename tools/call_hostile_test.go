package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// Servers that ask twice, change their mind after payment, die or fall silent at each moment: the
// exact outcome, one payment at most, and the same call again cannot pay twice. One row per trick,
// over both wires.
func TestHostileMCPServers(t *testing.T) {
	for _, c := range []struct {
		trick    string
		code     x402.Code // "": served
		sent     int       // payments that reached the server
		settled  int
		patience time.Duration
	}{
		{"twins", x402.InvalidRequirement, 0, 0, 0},
		{"asks again", x402.PaymentRejected, 1, 0, 0},
		{"raises", x402.PriceChanged, 1, 0, 0},
		{"dies asked", x402.SessionTerminated, 0, 0, 0},
		{"dies paid", x402.OutcomeUnknown, 1, 0, 0},
		{"dies settled", x402.OutcomeUnknown, 1, 1, 0},
		{"silent asked", x402.Timeout, 0, 0, 300 * time.Millisecond},
		{"silent paid", x402.OutcomeUnknown, 1, 0, 5 * time.Second},
		{"mute", "", 1, 1, 0},
	} {
		for _, wire := range []string{"stdio", "http"} {
			t.Run(c.trick+" "+wire, func(t *testing.T) {
				t.Parallel()
				code := c.code
				w := newWorld(t, rules{}).funded(t, rules{})
				server := &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "result",
					Trick: c.trick, Exit: func() {
						panic(http.ErrAbortHandler)
					}}
				if wire == "http" {
					if code == x402.SessionTerminated {
						code = x402.NetworkError
					}
					at, loopback := overHTTP(t, server)
					w.sells(t, map[string]seller.Server{"shop": {URL: at}}, loopback)
				} else {
					w.sells(t, map[string]seller.Server{"shop": command(t,
						map[string]any{"Facilitator": w.FacilitatorURL, "PayTo": w.PayToEVM,
							"Dialect": "result", "Trick": c.trick})})
				}
				if c.patience != 0 {
					// of a session that is open: a busy machine takes its time to start a process
					must.Get(w.wallet.Pay(t.Context(), CallIn{Server: "shop", Tool: "free"}))(t)
					w.wallet.Engine.Policy.Deadline = c.patience
				}
				in := CallIn{Server: "shop", Tool: "paid", Arguments: json.RawMessage(`{"q":1}`)}
				r, err := w.wallet.Pay(t.Context(), in)
				if c.code == "" {
					require.NoError(t, err)
					require.Equal(t, []any{pay.StatusPaid, "chain"}, []any{r.Status, *r.Proof},
						"without a receipt the chain is asked")
				} else {
					require.Equal(t, code, x402.AsError(err).Code, "%v: %v", err, x402.AsError(err).Err)
					require.Equal(t, c.sent == 1, x402.AsError(err).Spent == "1000",
						"what may have left is held")
				}
				require.Equal(t, c.settled, len(w.Settlements()))
				if wire == "http" {
					require.Equal(t, c.sent, len(server.shown()))
				} else {
					requireStarted(t, w, 1, "what may have left is not sent to a new process")
				}
				if c.sent == 0 || c.code == "" {
					return
				}
				again, err := w.wallet.Pay(t.Context(), in)
				if c.trick == "dies settled" {
					require.NoError(t, err)
					require.Equal(t, pay.StatusUnserved, again.Status, "the chain knows that it was paid")
				}
				require.Equal(t, c.settled, len(w.Settlements()))
				if wire == "http" {
					different := map[string]bool{}
					for _, payment := range server.shown() {
						different[payment] = true
					}
					require.Equal(t, 1, len(different), "only the very same bytes go out again")
				}
				open := must.Get(w.wallet.Store.Unfinished(t.Context(), "", 10))(t)
				require.Equal(t, 1-c.settled, len(open))
			})
		}
	}
}

// requireStarted counts the processes that said that they were started; what they say comes on its
// own way.
func requireStarted(t *testing.T, w *world, n int, why ...any) {
	t.Helper()
	count := func() int { return strings.Count(w.log.String(), "started") }
	require.Eventually(t, func() bool { return count() >= n }, time.Minute, time.Millisecond, why...)
	require.Equal(t, n, count(), why...)
}

// What a server says unasked takes neither memory nor the session; a message without end takes the
// session alone.
func TestMCPFloods(t *testing.T) {
	w := newWorld(t, rules{})
	w.sells(t, map[string]seller.Server{
		"floods": command(t, map[string]any{"Trick": "floods"}),
		"long":   command(t, map[string]any{"Trick": "long"}),
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 2 {
		r := must.Get(w.wallet.Pay(t.Context(), CallIn{Server: "floods", Tool: "free",
			Arguments: json.RawMessage(`{"q":1}`)}))(t)
		require.Equal(t, `{"q":1}`, r.Content)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapInuse)-int64(before.HeapInuse), int64(64<<20))
	_, err := w.wallet.Pay(t.Context(), CallIn{Server: "long", Tool: "free"})
	require.Equal(t, x402.SessionTerminated, x402.AsError(err).Code, "%v", err)
	require.NotContains(t, w.log.String(), "passphrase", "a question of a server's reaches nobody")
}

// Many calls share one session; each is a purchase of its own.
func TestParallelCallsShareASession(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.sells(t, map[string]seller.Server{"shop": command(t, map[string]any{"Facilitator": w.FacilitatorURL,
		"PayTo": w.PayToEVM, "Dialect": "result"})})
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			r, err := w.wallet.Pay(t.Context(), CallIn{Server: "shop", Tool: "paid",
				Arguments: json.RawMessage(fmt.Sprintf(`{"q":%d}`, i))})
			if err != nil || r.Content != fmt.Sprintf(`{"q":%d}`, i) {
				t.Error(r.Content, err)
			}
		})
	}
	calls.Wait()
	require.Equal(t, 20, len(w.Settlements()))
	requireStarted(t, w, 1)
}

// A session that died is opened again, once, by the call that needs it.
func TestSessionsAreOpenedAgain(t *testing.T) {
	w := newWorld(t, rules{})
	server := &paidServer{Sessions: true}
	at, loopback := overHTTP(t, server)
	w.sells(t, map[string]seller.Server{"command": command(t, map[string]any{}), "url": {URL: at}}, loopback)
	free := func(name string) {
		t.Helper()
		r := must.Get(w.wallet.Pay(t.Context(), CallIn{Server: name, Tool: "free"}))(t)
		require.Equal(t, pay.StatusFree, r.Status)
	}
	free("command")
	_, err := w.wallet.Pay(t.Context(), CallIn{Server: "command", Tool: "quit"})
	require.Equal(t, x402.SessionTerminated, x402.AsError(err).Code, "%v", err)
	free("command")
	requireStarted(t, w, 2)
	free("url")
	server.forget()
	free("url")
	require.Equal(t, []string{"server/discover", "initialize", "tools/call free", "server/discover",
		"initialize", "tools/call free"}, server.asked())
}

// Where a server may be is the owner's to say, and what is asked of it is one line.
func TestWhereMCPServersMayBe(t *testing.T) {
	w := newWorld(t, rules{})
	w.sells(t, map[string]seller.Server{"gone": {Command: []string{"/nonexistent/server"}},
		"true": {Command: []string{"true"}}})
	for _, c := range []struct {
		server, tool string
		code         x402.Code
	}{
		{"", "a", x402.InvalidArgument}, {"nobody", "a", x402.InvalidArgument},
		{"gone", "", x402.InvalidArgument},
		{"gone", "a", x402.ServerUnavailable}, {"true", "a", x402.ServerUnavailable},
		{"gone", "a\x00b", x402.InvalidArgument}, {"gone", "a\nb", x402.InvalidArgument},
		{"gone", strings.Repeat("a", 3000), x402.InvalidArgument},
		{"mcp://gone/../true", "a", x402.URLBlocked}, {"mcp://nobody", "a", x402.URLBlocked},
		{"mcp://gone?x", "a", x402.URLBlocked},
		{"http://127.0.0.1:1/mcp", "a", x402.URLBlocked}, {"https://169.254.169.254/mcp", "a",
			x402.URLBlocked}, {"http://example.com/mcp", "a", x402.URLBlocked},
		{"https://user:pass@example.com/mcp", "a", x402.URLBlocked}, {"https://example.com/mcp#x", "a",
			x402.URLBlocked}, {"file:///bin/sh", "a", x402.URLBlocked},
		{"/bin/sh", "a", x402.InvalidArgument}, {"npx evil", "a", x402.InvalidArgument},
	} {
		t.Run(c.server, func(t *testing.T) {
			_, err := w.wallet.Pay(t.Context(), CallIn{Server: c.server, Tool: c.tool})
			require.Equal(t, c.code, x402.AsError(err).Code, "%s %q: %v", c.server, c.tool, err)
			if c.tool == "a" {
				_, err = w.wallet.ListTools(t.Context(), c.server)
				require.Equal(t, c.code, x402.AsError(err).Code, "%s: %v", c.server, err)
			}
		})
	}
	w.wallet.Engine.Rules.DenyHosts = []string{"gone"}
	_, err := w.wallet.Pay(t.Context(), CallIn{Server: "gone", Tool: "a"})
	require.Equal(t, x402.PolicyDenied, x402.AsError(err).Code)
	require.Equal(t, x402.PolicyDenied, x402.AsError(must.Err(w.wallet.ListTools(t.Context(), "gone"))).Code)
}

// A caller that leaves is no reason to lose what is under way; before the payment it is.
func TestACallerThatLeaves(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.sells(t, map[string]seller.Server{"shop": command(t, map[string]any{"Facilitator": w.FacilitatorURL,
		"PayTo": w.PayToEVM, "Dialect": "result", "Trick": "silent asked"})})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, must.Err(w.wallet.Pay(ctx, CallIn{Server: "shop", Tool: "paid"})))
	require.Empty(t, must.Get(w.wallet.Store.Recent(t.Context(), 10))(t))
	r, err := w.wallet.Pay(t.Context(), CallIn{Server: "shop", Tool: "free"})
	require.NoError(t, err, "the session is none the worse")
	require.Equal(t, pay.StatusFree, r.Status)
}
