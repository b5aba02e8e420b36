package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/seller"
	"x402-wallet/x402/money"
)

var update = flag.Bool("update", false, "write testdata/tools.golden.json again")

const golden = "testdata/tools.golden.json"

func noWallet(context.Context) (*Wallet, error) { panic("listing tools opens no wallet") }

// What a model reads is frozen: it changes only on purpose (go test ./tools -run Golden -update),
// and nothing of it depends on the day, the wallet or what somebody else said.
func TestGoldenTools(t *testing.T) {
	c := serve(t, &Server{Version: "test", Open: noWallet})
	hello := must.JSON[struct{ Instructions string }](c.hello)(t)
	list := must.JSON[struct{ Tools []json.RawMessage }](c.tools)(t)

	var sent bytes.Buffer
	e := json.NewEncoder(&sent)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(map[string]any{"instructions": hello.Instructions, "tools": list.Tools}))
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, sent.Bytes(), "", "  "))
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, pretty.Bytes(), 0o644))
	}
	want := must.Get(os.ReadFile(golden))(t)
	require.Equal(t, string(want), pretty.String(),
		"what the model sees changed: if it is meant to, run with -update")
	for range 3 {
		require.Equal(t, string(c.tools), string(serve(t, &Server{Version: "test", Open: noWallet}).tools))
	}

	t.Run("sizes", func(t *testing.T) {
		type model struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema"`
		}
		var read []model
		for _, tool := range list.Tools {
			m := must.JSON[model](tool)(t)
			read = append(read, m)
		}
		reading := must.Get(json.Marshal(read))(t)
		t.Logf("instructions %d bytes, names, descriptions and input schemas %d, all definitions %d",
			len(hello.Instructions), len(reading), len(c.tools))
		require.Less(t, len(hello.Instructions), 1000)
		require.Less(t, len(reading), 6_000)
		require.Less(t, len(c.tools), 14_000)
	})
}

// What holds of every tool, whatever the golden file says. Every argument is described, or its name says what
// it is. No other argument is taken. What changes nothing may be called again. Only what was paid for is not
// to be cut.
func TestToolsAreExplained(t *testing.T) {
	c := serve(t, &Server{Version: "test", Open: noWallet})
	list := must.JSON[struct {
		Tools []struct {
			Meta                      map[string]any `json:"_meta"`
			Name, Title               string
			InputSchema, OutputSchema *jsonschema.Schema
			Annotations               map[string]any
		}
	}](c.tools)(t)
	for _, tool := range list.Tools {
		t.Run(tool.Name, func(t *testing.T) {
			require.NotEmpty(t, tool.Title)
			for name, p := range tool.InputSchema.Properties {
				require.True(t, p.Description != "" || slices.Contains(selfEvident, name), name)
			}
			nothing := &jsonschema.Schema{Not: &jsonschema.Schema{}}
			require.Equal(t, nothing, tool.InputSchema.AdditionalProperties)
			require.Equal(t, "object", tool.InputSchema.Type)
			require.Equal(t, "object", tool.OutputSchema.Type)
			require.Equal(t, tool.Annotations["readOnlyHint"], tool.Annotations["idempotentHint"])
			spends := slices.Contains([]string{payName, manyName, callName}, tool.Name)
			require.Equal(t, spends, tool.Annotations["destructiveHint"])
			isWhole := spends || tool.Name == "x402_history"
			require.Equal(t, isWhole, tool.Meta["anthropic/maxResultSizeChars"] != nil)
		})
	}
	require.Len(t, list.Tools, 12, "an old name is answered, not listed")
}

// selfEvident are arguments whose names say what they are.
var selfEvident = []string{"url", "headers", "body", "bodyBase64", "idempotencyKey",
	"tool", "arguments", "network",
	"query", "reason", "paymentId", "status", "length", "evidence"}

// A method that the schema offers is one that is sent, and states that it offers are those of the
// ledger.
func TestEnumsAreTrue(t *testing.T) {
	h := seller.New(seller.Options{})
	for _, method := range methods {
		require.NoError(t, h.Check(seller.Request{Method: method.(string), URL: "https://example.com/"}))
	}
	schema := inputSchema[HistoryIn]()
	for _, state := range schema.Properties["status"].Enum {
		must.Get(HistoryIn{Status: state.(string)}.filter())(t)
	}
	require.EqualValues(t, mostRows, *schema.Properties["limit"].Maximum)
}

// What can be listed or read besides the tools is what was bought, and nothing of the keys.
func TestNothingElseIsListed(t *testing.T) {
	c := serve(t, &Server{Version: "test", Open: noWallet})
	for method, name := range map[string]string{"resources/list": "resources",
		"resources/templates/list": "resourceTemplates"} {
		var list []struct{ URI, URITemplate string }
		require.NoError(t, json.Unmarshal(member(t, c.request(method, map[string]any{}).Result, name), &list))
		for _, r := range list {
			require.Contains(t, []string{"x402://status", "x402://payments/{id}",
				"x402://payments/{id}/content", "x402://subscriptions/{name}",
				"x402://subscriptions/{name}/content"}, r.URI+r.URITemplate)
		}
	}
	for _, uri := range []string{"x402://keystore", "file:///home/x402-wallet/keystore.json",
		"x402://payments/../keystore.json/content"} {
		t.Run(uri, func(t *testing.T) {
			require.NotNil(t, c.request("resources/read", map[string]any{"uri": uri}).Error, uri)
		})
	}
}

func member(t *testing.T, object json.RawMessage, name string) json.RawMessage {
	t.Helper()
	members := must.JSON[map[string]json.RawMessage](object)(t)
	return members[name]
}

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
	list := must.JSON[struct{ Tools []struct{ Name string } }](c.tools)(t)
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
	text := must.Get(json.Marshal(vault))(t)
	value := must.JSON[map[string]any](text)(t)
	require.Subset(t, slices.Collect(maps.Keys(value)), ofOneKind)
	require.NoError(t, c.schemas[delegationName].Validate(value))
	require.NoError(t, c.schemas["closed "+delegationName].Validate(value))
}
