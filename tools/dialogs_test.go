package tools

import (
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// A hundred calls are one dialog: the others are answered at once, each with what to do.
func TestOneDialogAtATime(t *testing.T) {
	for _, era := range asking {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			url := func(i int) map[string]any {
				return map[string]any{"url": fmt.Sprint(w.SellerURL, "/weather?", i)}
			}
			refused := func(r toolResult) {
				t.Helper()
				f := r.code(t)
				require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
				if f.Details["waiting"] == nil { // else the queue of this host is full
					require.Contains(t, f.Hint, "another payment's question is in front of the person")
					require.Contains(t, f.Hint, "x402-wallet approve apr_")
				}
			}
			others := func() {
				t.Helper()
				for i := range 100 {
					c.start(url(i), nil)
					refused(c.result())
				}
			}
			_, r := c.pay(url(0), "decline", others)
			require.EqualValues(t, "APPROVAL_DECLINED", r.code(t).Error)
			list, err := w.wallet.Store.Approvals(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 5, "no more wait for one host")
			_, r = c.pay(url(1), "accept", nothing)
			require.False(t, r.IsError, "the next question may be asked: %s", r.StructuredContent)
			require.Len(t, w.Settlements(), 1)
		})
	}
}

func TestClosedDialogs(t *testing.T) {
	for _, era := range asking {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			for i := range maxUnanswered {
				url := fmt.Sprint(w.SellerURL, "/weather?", i)
				_, r := c.pay(map[string]any{"url": url}, "cancel", nothing)
				require.EqualValues(t, "APPROVAL_REQUIRED", r.code(t).Error)
			}
			c.start(map[string]any{"url": w.SellerURL + "/weather"}, nil)
			f := c.result().code(t)
			require.EqualValues(t, "APPROVAL_REQUIRED", f.Error)
			require.Contains(t, f.Hint, "x402-wallet approve apr_", "the command line still can answer it")
			_, r := c.pay(map[string]any{"url": w.SellerURL + "/report"}, "accept", nothing)
			require.False(t, r.IsError, "%s", r.StructuredContent)
		})
	}
}

// Sessions do not stand in each other's way, and one that is gone is forgotten.
func TestDialogs(t *testing.T) {
	var d dialogs
	one, other := new(mcp.ServerSession), new(mcp.ServerSession)
	later := time.Now().Add(time.Hour)
	require.True(t, d.begin(one, "a", later))
	require.False(t, d.begin(one, "b", later))
	require.False(t, d.begin(one, "a", later), "the same question is one dialog, too")
	require.True(t, d.begin(other, "b", time.Now()))
	d.end(one, "b")
	require.False(t, d.begin(one, "b", later), "the answer to another question ends nothing")
	d.end(one, "a")
	require.True(t, d.begin(one, "b", later))
	require.Len(t, d.open, 1)
	require.True(t, d.begin(other, "c", later))
}
