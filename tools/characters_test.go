package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

func (c *client) said(tool string, arguments any) string {
	c.t.Helper()
	var r struct{ StructuredContent json.RawMessage }
	result := c.ask("tools/call", map[string]any{"name": tool, "arguments": arguments})
	require.NoError(c.t, json.Unmarshal(result, &r))
	return string(r.StructuredContent)
}

// What a model reads of a purchase is paid for by the word.
func TestCharacters(t *testing.T) {
	w := newWorld(t, rules{})
	w.Fund(w.address(sandbox.EVM), sandbox.USDC)
	w.Fund(w.address(sandbox.Solana), sandbox.USDC)
	c := w.serve(t)
	measured := func(what, text string, most int) {
		t.Logf("%s: %d characters", what, len(text))
		require.LessOrEqual(t, len(text), most, "%s: %s", what, text)
	}
	id := ""
	for path, address := range map[string]string{"/weather": sandbox.EVM, "/solana": sandbox.Solana} {
		paid := c.said("x402_pay", map[string]any{"url": w.SellerURL + path})
		content := fmt.Sprintf("%q", sandbox.Content(path))
		require.Contains(t, paid, content)
		measured("paid on "+address+", around its content", strings.Replace(paid, content, "", 1), 650)
		in := map[string]any{"url": w.SellerURL + path, "idempotencyKey": path}
		measured("paid with a key on "+address, c.said("x402_pay", in), 730)
		replayed := c.said("x402_pay", in)
		measured("replayed on "+address+", around its content", strings.Replace(replayed, content, "", 1),
			650)

		var list struct{ Transactions []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(c.said("x402_history", map[string]any{"url": path})), &list))
		row := string(list.Transactions[0])
		url := fmt.Sprintf(`"url":"%s",`, w.SellerURL+path)
		require.Contains(t, row, url)
		measured("row on "+address, strings.Replace(row, url, "", 1), 330)
		var bought struct{ PaymentID string }
		require.NoError(t, json.Unmarshal([]byte(paid), &bought))
		id = bought.PaymentID
	}
	measured("one payment", c.said("x402_history", map[string]any{"paymentId": id}), 1000)
	for range 8 {
		c.said("x402_pay", map[string]any{"url": w.SellerURL + "/weather"})
	}
	measured("history of ten", c.said("x402_history", map[string]any{}), 10*(330+40)+200)
	w.wallet.Engine.Transport = rewriting{w.wallet.Engine.Transport, strings.Repeat("a line of text ", 4000)}
	measured("truncated", w.serve(t).said("x402_pay", map[string]any{"url": w.SellerURL + "/weather"}),
		8<<10+1000)
}
