package tools

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

func (w *world) mountsShop(t *testing.T) *paidServer {
	server := &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "result"}
	at, loopback := overHTTP(t, server)
	w.sells(t, map[string]seller.Server{"shop": {URL: at}}, loopback)
	w.wallet.Mounts = []string{"shop"}
	return server
}

// A mounted tool that needs a person's approval asks for it, in both eras: declining pays nothing,
// accepting pays once.
func TestAMountedToolAsksItsPerson(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			w.mountsShop(t)
			answers := []string{"decline", "accept"}
			h := w.hosts(t, w.server(), era, func(*mcp.ElicitParams) (said string) {
				said, answers = answers[0], answers[1:]
				return said
			})
			require.Contains(t, h.tools(), "shop__rich")
			r, said := h.call("shop__rich", map[string]any{"q": "a"})
			f := must.JSON[Failure]([]byte(textOf(r)))(t)
			require.Equal(t, []any{true, x402.ApprovalDeclined}, []any{r.IsError, f.Error})
			require.Empty(t, said)
			require.Zero(t, w.Signatures())

			r, said = h.call("shop__rich", map[string]any{"q": "a"})
			require.False(t, r.IsError, "%v", textOf(r))
			require.Equal(t, "paid", said["status"])
			require.Len(t, r.Content, 2, "the server's own answer")
			require.Len(t, h.asked, 2)
			require.Contains(t, h.asked[1].Message, `#rich"`)
			require.Len(t, w.Settlements(), 1)
		})
	}
}

// A mounted tool of a locked wallet asks its person to open the page, and is paid when they have.
func TestAMountedToolUnlocks(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			w := newWorld(t, rules{}).funded(t, rules{})
			w.mountsShop(t)
			l := &lock{Guard: historytest.Guard{Store: w.wallet.Store}}
			w.wallet.Engine.Guard, w.keys.unlock = l, l.unlock
			s := w.server()
			t.Cleanup(func() { _ = s.close() })
			h := w.hosts(t, s, era, func(q *mcp.ElicitParams) string {
				go func() {
					time.Sleep(50 * time.Millisecond) // accepting is not answering
					_ = types(t, q.URL, url.Values{"passphrase": {"correct horse"}})
				}()
				return "accept"
			})
			require.Contains(t, h.tools(), "shop__paid", "listing needs no key")
			for n := 1; n <= 2; n++ {
				r, said := h.call("shop__paid", map[string]any{"q": "a"})
				require.Equal(t, []any{false, "paid"}, []any{r.IsError, said["status"]}, "%v", textOf(r))
				require.Len(t, w.Settlements(), n)
			}
			require.Len(t, h.asked, 1)
			require.Equal(t, "url", h.asked[0].Mode)
		})
	}
}

// A host that gives up loses no purchase: the same call gets what it bought, unpaid, and only the
// one after that buys again.
func TestAMountedToolsLostAnswer(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			w := newWorld(t, rules{}).funded(t, rules{})
			s := newShop(t, w)
			w.sells(t, map[string]seller.Server{"weather": {URL: s.url}}, s.loopback)
			w.wallet.Mounts = []string{"weather"}
			h := w.hosts(t, w.server(), era)
			h.on = &shop{heard: make(chan struct{}, 10)} // the tool waits until we say so
			require.Len(t, h.tools(), 3)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-h.on.heard; cancel() }()
			_, err := h.CallTool(ctx, &mcp.CallToolParams{Name: "weather__forecast",
				Arguments: map[string]any{"city": "Lisbon"}, Meta: mcp.Meta{"progressToken": "t"}})
			require.ErrorIs(t, err, context.Canceled)
			var lost history.Payment
			require.Eventually(t, func() bool { // the SDK says so on its own time
				list := must.Get(w.wallet.Store.Unfinished(t.Context(), "", 10))(t)
				lost = list[0]
				return lost.Waiter == ""
			}, time.Minute, 5*time.Millisecond)
			for range 3 {
				s.heard <- struct{}{}
			}
			h.on = s
			r, said := h.call("weather__forecast", map[string]any{"city": "Lisbon"})
			require.Equal(t, []any{false, "replayed", lost.ID}, []any{r.IsError, said["status"],
				said["paymentId"]}, "%v", textOf(r))
			require.Equal(t, map[string]any{"sky": "rain"}, r.StructuredContent)
			require.Len(t, w.Settlements(), 1)
			require.Eventually(t, func() bool {
				p, err := w.wallet.Store.Payment(t.Context(), lost.ID)
				return err == nil && p.Delivered
			}, time.Minute, 5*time.Millisecond)
			r, again := h.call("weather__forecast", map[string]any{"city": "Lisbon"})
			require.Equal(t, []any{false, "paid"}, []any{r.IsError, again["status"]}, "%v", textOf(r))
			require.NotEqual(t, said["paymentId"], again["paymentId"])
			require.Len(t, w.Settlements(), 2)
		})
	}
}

type unsealed struct {
	historytest.Guard
	changed atomic.Bool
}

func (u *unsealed) CheckConfig(context.Context) error {
	if u.changed.Load() {
		return x402.Errorf(x402.PolicyUnsealed, "config.toml is not what was sealed")
	}
	return nil
}

// Under rules that nobody sealed no mounted server is started or asked, and none of its tools is called.
func TestUnsealedMounts(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	guard := &unsealed{}
	guard.changed.Store(true)
	w.wallet.Engine.Guard = guard
	w.sells(t, map[string]seller.Server{"shop": command(t, map[string]any{"Facilitator": w.FacilitatorURL,
		"PayTo": w.PayToEVM, "Dialect": "result"})})
	w.wallet.Mounts = []string{"shop"}
	within(t, mountTimeout, func() { // the list does not wait for it
		require.Empty(t, w.hosts(t, w.server(), "2025-11-25").tools())
	})
	require.NotContains(t, w.log.String(), "started")

	sealed := newWorld(t, rules{}).funded(t, rules{})
	server := sealed.mountsShop(t)
	guard = &unsealed{}
	sealed.wallet.Engine.Guard = guard
	h := sealed.hosts(t, sealed.server(), "2025-11-25")
	require.Contains(t, h.tools(), "shop__paid")
	heard := len(server.asked())
	guard.changed.Store(true)
	for _, tool := range []string{"shop__paid", "shop__free"} {
		r, _ := h.call(tool, nil)
		require.Equal(t, x402.PolicyUnsealed, must.JSON[Failure]([]byte(textOf(r)))(t).Error, tool)
	}
	require.Len(t, server.asked(), heard, "it is not even asked what it costs")
}
