package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (w *world) manyOf(most string, paths ...string) map[string]any {
	var requests []map[string]any
	for _, path := range paths {
		requests = append(requests, map[string]any{"url": w.SellerURL + path})
	}
	return map[string]any{"requests": requests, "maxAmount": most}
}

func rows(t *testing.T, out map[string]any) (list []map[string]any) {
	t.Helper()
	text := must.Get(json.Marshal(out["rows"]))(t)
	require.NoError(t, json.Unmarshal(text, &list))
	return list
}

func TestManyArePaidByOneCall(t *testing.T) {
	w := richWorld(t)
	w.Fund(w.address(sandbox.Solana), sandbox.USDC)
	c := w.serve(t)
	in := w.manyOf("$0.01", "/weather", "/free", "/solana", "/expensive", "/weather")
	out := c.ok("x402_pay_many", in)
	list := rows(t, out)
	require.Len(t, list, 5)
	require.Equal(t, sandbox.Content("/weather"), list[0]["content"])
	require.Equal(t, w.SellerURL+"/free", list[1]["url"])
	require.Equal(t, "paid", list[2]["status"])
	require.Equal(t, "AMOUNT_EXCEEDS_MAX", list[3]["error"], "%v", list[3])
	require.NotEmpty(t, list[3]["next"])
	require.EqualValues(t, 0, list[4]["sameAs"])
	require.Equal(t, list[0]["paymentId"], list[4]["paymentId"])
	require.Empty(t, list[4]["content"])
	require.Equal(t, "0.002", out["spent"])
	require.Equal(t, "change", out["next"].(map[string]any)["do"])
	require.Len(t, w.Settlements(), 2)

	for name, arguments := range map[string]map[string]any{
		"no ceiling": {"requests": in["requests"]},
		"a key each": {"maxAmount": "$1",
			"requests": []map[string]any{{"url": w.SellerURL, "idempotencyKey": "x"}}},
		"no URL":      {"maxAmount": "$1", "requests": []map[string]any{{}}},
		"no request":  {"maxAmount": "$1", "requests": []map[string]any{}},
		"no dollars":  {"maxAmount": "1000", "requests": in["requests"]},
		"no requests": {"maxAmount": "$1"},
	} {
		require.Equal(t, x402.InvalidArgument, c.refused("x402_pay_many", arguments).Error, name)
	}
}

// A list is one question in every era, which names each payment and the sum.
func TestManyAreApprovedByOneAnswer(t *testing.T) {
	for _, era := range askingEras {
		t.Run(era, func(t *testing.T) {
			w := askingWorld(t)
			w.Fund(w.address(sandbox.Solana), sandbox.USDC)
			c := serveAsker(t, w.server(), era, map[string]any{})
			c.tool = manyName
			in := w.manyOf("$0.01", "/weather", "/solana", "/either")
			asked, r := c.pay(in, "decline", nothing)
			require.Equal(t, x402.ApprovalDeclined, r.code(t).Error)
			require.Contains(t, asked.Message, "Pay $0.003 in all, for 3 payments?")
			for _, path := range []string{"/weather", "/solana", "/either"} {
				require.Contains(t, asked.Message, w.SellerURL+path)
			}
			require.Empty(t, w.Settlements())

			_, r = c.pay(in, "accept", nothing)
			require.False(t, r.IsError, "%s", r.StructuredContent)
			require.Len(t, w.Settlements(), 3)
			require.Empty(t, must.Get(report.OpenApprovals(t.Context(), w.wallet.Store))(t))
		})
	}
}

// The contents of a batch are bounded together, and x402_history has the rest of each.
func TestManyLongContents(t *testing.T) {
	w := richWorld(t)
	long := strings.Repeat("é", 7<<10)
	w.wallet.Engine.Transport = rewriting{w.wallet.Engine.Transport, long}
	c := w.serve(t)
	var paths []string
	for i := range 20 {
		paths = append(paths, fmt.Sprint("/weather?n=", i))
	}
	sum := 0
	for _, row := range rows(t, c.ok("x402_pay_many", w.manyOf("$0.02", paths...))) {
		require.Equal(t, "paid", row["status"])
		content := row["content"].(string)
		sum += len(content)
		require.True(t, strings.HasPrefix(long, content))
		require.Equal(t, true, row["contentTruncated"])
		require.NotEmpty(t, row["contentBegin"])
		why := row["next"].(map[string]any)["why"].(string)
		require.Contains(t, why, fmt.Sprintf("offset %d reads on", len(content)))
		rest := c.ok("x402_history", map[string]any{"paymentId": row["paymentId"], "offset": len(content)})
		require.Equal(t, long[len(content):], rest["content"])
	}
	require.LessOrEqual(t, sum, MaxContents)
	require.Greater(t, sum, MaxContents-20*4)
}

func TestEvenly(t *testing.T) {
	of := func(lengths ...int) (list []pay.Outcome) {
		for _, n := range lengths {
			list = append(list, pay.Outcome{SameAs: -1, Result: pay.Result{Content: strings.Repeat("a", n)}})
		}
		return list
	}
	require.Equal(t, MaxContents, evenly(nil))
	require.Equal(t, MaxContents, evenly(of(1, 100, 16<<10)))
	require.Equal(t, 15<<10, evenly(of(16<<10, 16<<10, 4<<10, 16<<10, 15<<10)))
	for _, lengths := range [][]int{{16 << 10, 16 << 10, 16 << 10, 16 << 10, 1}, {8 << 10},
		{20000, 30000, 40000}} {
		most, sum := evenly(of(lengths...)), 0
		for _, n := range lengths {
			sum += min(n, most)
		}
		require.LessOrEqual(t, sum, MaxContents)
	}
}

// What waits is shown as one question, wherever a person or an agent looks.
func TestAListIsOneEntry(t *testing.T) {
	w := askingWorld(t)
	c := w.serve(t)
	f := c.refused("x402_pay_many", w.manyOf("$0.01", "/weather", "/either"))
	require.Equal(t, x402.ApprovalRequired, f.Error)
	id := f.Details["approvalId"].(string)
	require.Equal(t, "x402-wallet approve "+id, f.Next.Command)
	var status struct{ Contents []struct{ Text string } }
	read := c.ask("resources/read", map[string]any{"uri": "x402://status"})
	require.NoError(t, json.Unmarshal(read, &status))
	require.Equal(t, 1, strings.Count(status.Contents[0].Text, id))
	shown := must.Get(w.wallet.Store.Asked(t.Context(), id))(t)
	require.Equal(t, history.Pending, shown.State)
	require.Equal(t, money.Dollars(2_000), shown.Price)
}

// A client with a progress token hears how many are over.
func TestManyTellTheirProgress(t *testing.T) {
	w := richWorld(t)
	c := serveAsker(t, w.server(), "2025-11-25", nil)
	c.tool = manyName
	c.start(w.manyOf("$0.01", "/weather", "/free", "/either"),
		map[string]any{"_meta": map[string]any{"progressToken": "t"}})
	var told []string
	for {
		m := c.next()
		if m.Method == "" {
			break
		}
		require.Equal(t, "notifications/progress", m.Method)
		p := must.JSON[struct{ Message string }](m.Params)(t)
		told = append(told, p.Message)
	}
	var want []string
	for n := range 3 {
		want = append(want, fmt.Sprintf("%d of 3 purchases are over", n+1))
	}
	require.Equal(t, want, told)
}
