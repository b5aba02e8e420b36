package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// door is a server that wants to be paid at initialize, and for its tools.
func (w *world) door(t *testing.T) {
	w.sells(t, map[string]seller.Server{"door": command(t, map[string]any{"Facilitator": w.FacilitatorURL,
		"PayTo": w.PayToEVM, "Dialect": "error", "Entry": true})})
}

// answer goes on with a call, to whose questions the person gives these answers.
func (c *asker) answer(arguments any, actions ...string) (asked []string, r toolResult) {
	c.t.Helper()
	c.start(arguments, nil)
	for _, action := range actions {
		q := c.hearQuestion()
		asked = append(asked, q.Message)
		c.answers(arguments, q, action)
	}
	return asked, c.result()
}

// An entry fee and a tool that both need the person's approval: asked about each, each paid once;
// after the tool is declined the entry stays paid.
func TestThePersonApprovesEntryAndTool(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			w.door(t)
			c := serveAsker(t, w.server(), era, map[string]any{})
			c.tool = callName
			arguments := map[string]any{"server": "door", "tool": "paid",
				"arguments": map[string]any{"q": "a"}, "maxAmount": "$0.002"}

			_, r := c.answer(arguments, "decline")
			require.EqualValues(t, x402.ApprovalDeclined, r.code(t).Error)
			require.Zero(t, w.Signatures(), "nothing is paid to get in where the person declined")

			asked, r := c.answer(arguments, "accept", "decline")
			require.Contains(t, asked[0], `For: initialize "mcp://door"`)
			require.Contains(t, asked[1], `Pay $0.001 to "door"?`)
			require.Contains(t, asked[1], `For: tools/call "mcp://door#paid"`)
			f := r.code(t)
			require.EqualValues(t, x402.ApprovalDeclined, f.Error, f.Message)
			if era < stateless {
				require.Equal(t, "1000", f.Spent, "the way in was paid")
				require.Len(t, f.Details["paidToEnter"], 1)
			}
			require.Len(t, w.Settlements(), 1)

			asked, r = c.answer(arguments, "accept")
			require.Contains(t, asked[0], "tools/call", "the way in is open")
			require.False(t, r.IsError, "%s", r.StructuredContent)
			require.Len(t, w.Settlements(), 2)

			again := askingWorld(t) // all of it in one go
			again.door(t)
			c = serveAsker(t, again.server(), era, map[string]any{})
			c.tool = callName
			_, r = c.answer(arguments, "accept", "accept")
			require.False(t, r.IsError, "%s", r.StructuredContent)
			require.Len(t, again.Settlements(), 2)
		})
	}
}

// What the way in cost is taken from maxAmount, also when the person was asked in between.
func TestEntryAndToolShareMaxAmount(t *testing.T) {
	w := askingWorld(t)
	w.door(t)
	c := serveAsker(t, w.server(), "2025-11-25", map[string]any{})
	c.tool = callName
	_, r := c.answer(map[string]any{"server": "door", "tool": "paid", "maxAmount": "1500"}, "accept")
	f := r.code(t)
	require.Equal(t, []any{x402.AmountExceedsMax, "1000"}, []any{f.Error, f.Spent}, f.Message)
	require.Len(t, w.Settlements(), 1)
}

// Where nobody can be asked, the owner approves one after the other; no repetition pays for the way
// in twice.
func TestTheOwnerApprovesEntryAndTool(t *testing.T) {
	w := askingWorld(t)
	w.door(t)
	in := CallIn{Server: "door", Tool: "paid"}
	for _, want := range []struct {
		method, spent string
		settled       int
	}{{seller.Initialize, "", 0}, {seller.CallTool, "1000", 1}} {
		for i := range 2 {
			_, err := w.wallet.Pay(t.Context(), in)
			require.Equal(t, x402.ApprovalRequired, x402.AsError(err).Code, "%v", err)
			a := must.Get(w.wallet.Store.Approval(t.Context(), approvalIn(err)))(t)
			require.Equal(t, want.method, a.Method)
			if i == 0 {
				require.Equal(t, want.spent, x402.AsError(err).Spent)
			} else {
				require.Empty(t, x402.AsError(err).Spent)
				require.NoError(t, w.wallet.Engine.Accept(t.Context(), a.ID, "owner"))
			}
			require.Len(t, w.Settlements(), want.settled)
		}
	}
	require.Equal(t, pay.StatusPaid, must.Get(w.wallet.Pay(t.Context(), in))(t).Status)
	require.Len(t, w.Settlements(), 2)
}

// A server that forgets whom it let in is paid for that once by a call, and the call says so.
func TestAServerThatForgetsPayments(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	server := &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM, Dialect: "error", Entry: true,
		Sessions: true}
	at := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"tools/call"`)) {
			server.forget()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		server.ServeHTTP(rw, r)
	}))
	t.Cleanup(at.Close)
	w.sells(t, map[string]seller.Server{"door": {URL: at.URL + "/mcp"}},
		strings.TrimPrefix(at.URL, "http://"))
	_, err := w.wallet.Pay(t.Context(), CallIn{Server: "door", Tool: "paid"})
	coded := x402.AsError(err)
	require.Equal(t, []any{x402.ServerUnavailable, "1000"}, []any{coded.Code, coded.Spent}, "%v", err)
	require.Len(t, w.Settlements(), 1)
}

func TestCallsThatComeTogetherPayOnceToEnter(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.door(t)
	const calls = 4
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			r, err := w.wallet.Pay(t.Context(), CallIn{Server: "door", Tool: "paid",
				Arguments: json.RawMessage(fmt.Sprintf(`{"q":"%d"}`, i))})
			assert.NoError(t, err)
			assert.Equal(t, pay.StatusPaid, r.Status)
		})
	}
	all.Wait()
	require.Len(t, w.Settlements(), 1+calls)
}
