package tools

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/sandbox"
	"x402-wallet/seller"
	"x402-wallet/x402/money"
)

// What every tool answers, and its error, is as its outputSchema says: clients refuse an answer that is not
// (client.call checks each one).
func TestEveryToolAnswersAsPublished(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.Delegate(w.address(sandbox.Solana), sandbox.USDC)
	w.lists(facilitator.Facilitator{Name: "sandbox", URL: w.FacilitatorURL})
	shop, loopback := overHTTP(t, &paidServer{Facilitator: w.FacilitatorURL, PayTo: w.PayToEVM,
		Dialect: "result"})
	w.sells(t, map[string]seller.Server{"shop": {URL: shop}}, loopback)
	c := w.serve(t)
	weather := w.SellerURL + "/weather"
	type in = map[string]any
	calls := map[string]struct{ right, wrong in }{
		payName: {in{"url": weather}, in{"url": weather + "?2", "maxAmount": "1"}},
		manyName: {w.manyOf("$0.05", "/weather?3", "/solana"),
			w.manyOf("$0.001", "/weather?4", "/weather?5")},
		"x402_estimate_cost":     {in{"url": w.SellerURL + "/either"}, in{"url": "x"}},
		"x402_check_balance":     {nil, in{"network": "x"}},
		delegationName:           {nil, in{"tokenAccount": "x"}},
		"x402_revoke_delegation": {nil, in{"tokenAccount": "x"}},
		"x402_list_tools":        {in{"server": "shop"}, in{"server": "x"}},
		callName:                 {in{"server": "shop", "tool": "paid"}, in{"server": "shop", "tool": "x"}},
		"x402_history":           {nil, in{"paymentId": "x"}},
		"x402_discover_services": {in{"query": "weather"}, in{"limit": -1}},
		"x402_propose_subscription": {in{"url": weather, "every": "1d", "maxAmount": "$0.05",
			"until": time.Now().AddDate(0, 1, 0).Format(time.DateOnly), "reason": "a test"}, in{}},
		"x402_setup_agent": {nil, in{"passphrase": "x"}},
	}
	var list struct{ Tools []struct{ Name string } }
	require.NoError(t, json.Unmarshal(c.tools, &list))
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(calls)))
	for name, call := range calls {
		_ = c.ok(name, call.right)
		c.refused(name, call.wrong)
	}
	last := c.ok("x402_history", map[string]any{"limit": 1})["transactions"].([]any)[0].(map[string]any)
	_ = c.ok("x402_history", map[string]any{"paymentId": last["paymentId"], "evidence": true})

	// what is of one kind of account alone is as open as what a later version adds
	amount := money.NewAmount(1)
	vault := DelegationOut{Float: &amount, Gas: &amount, Owner: "0x1", PerPayment: &amount,
		PerPeriod: &amount, PeriodSeconds: 1, MoreAt: "x"}
	text, err := json.Marshal(vault)
	require.NoError(t, err)
	var value map[string]any
	require.NoError(t, json.Unmarshal(text, &value))
	require.Subset(t, slices.Collect(maps.Keys(value)), ofOneKind)
	require.NoError(t, c.schemas[delegationName].Validate(value))
	require.NoError(t, c.schemas["closed "+delegationName].Validate(value))
}
