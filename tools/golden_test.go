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

	"github.com/stretchr/testify/require"

	"x402-wallet/seller"
)

var update = flag.Bool("update", false, "write testdata/tools.golden.json again")

const golden = "testdata/tools.golden.json"

func noWallet(context.Context) (*Wallet, error) { panic("listing tools opens no wallet") }

// What a model reads is frozen: it changes only on purpose (go test ./tools -run Golden -update),
// and nothing of it depends on the day, the wallet or what somebody else said.
func TestGoldenTools(t *testing.T) {
	c := serve(t, &Server{Version: "test", Open: noWallet})
	var hello struct{ Instructions string }
	require.NoError(t, json.Unmarshal(c.hello, &hello))
	var list struct{ Tools []json.RawMessage }
	require.NoError(t, json.Unmarshal(c.tools, &list))

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
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
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
			var m model
			require.NoError(t, json.Unmarshal(tool, &m))
			read = append(read, m)
		}
		reading, err := json.Marshal(read)
		require.NoError(t, err)
		t.Logf("instructions %d bytes, names, descriptions and input schemas %d, all definitions %d",
			len(hello.Instructions), len(reading), len(c.tools))
		require.Less(t, len(hello.Instructions), 1000)
		require.Less(t, len(reading), 6_000)
		require.Less(t, len(c.tools), 14_000)
	})
}

// The tools letter by letter: arguments, and the names in answers.
func TestToolsAsSpecified(t *testing.T) {
	c := serve(t, &Server{Version: "test", Open: noWallet})
	var list struct {
		Tools []struct {
			Meta                     map[string]any `json:"_meta"`
			Name, Title, Description string
			InputSchema              node
			OutputSchema             node
			Annotations              map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(c.tools, &list))
	for _, want := range []struct {
		name             string
		arguments        []string
		more             []string // further arguments
		answers          map[string][]string
		beyond           map[string][]string
		readOnly, danger bool
		open             bool
	}{
		{name: "x402_pay", arguments: []string{"url", "method", "headers", "body", "maxAmount", "network",
			"asset", "idempotencyKey"}, danger: true, open: true,
			answers: map[string][]string{
				"": {"status", "paymentRequired", "paymentId", "httpStatus", "content", "contentType",
					"contentLength", "contentTruncated", "contentUri", "amountPaid", "price", "asset",
					"symbol", "network", "payTo", "transactionSignature", "facilitator", "proof",
					"budget", "repeat", "next"},
			},
			beyond: map[string][]string{"": {"contentBegin", "contentEnd", "approvedAt", "upTo"}}},
		{name: "x402_pay_many", arguments: []string{"requests", "maxAmount", "idempotencyKey"}, danger: true,
			open:    true,
			answers: map[string][]string{"": {"rows", "served", "failed", "spent", "repeat", "next"}}},
		{name: "x402_list_tools", arguments: []string{"server"}, readOnly: true, open: true,
			answers: map[string][]string{"": {"next", "server", "tools"}, "tools": {"name", "description",
				"inputSchema", "price"}}},
		{name: "x402_call_tool", arguments: []string{"server", "tool", "arguments", "maxAmount",
			"idempotencyKey"}, danger: true, open: true,
			// the rest is as x402_pay says
			answers: map[string][]string{"": {"status", "paymentRequired", "httpStatus", "content",
				"contentType", "next"}}},
		{name: "x402_estimate_cost", arguments: []string{"url", "method", "headers", "body"}, open: true,
			answers: map[string][]string{
				"": {"next", "url", "paymentRequired", "httpStatus", "options", "chosen"},
				"options": {"scheme", "network", "amount", "price", "asset", "payTo", "maxTimeoutSeconds",
					"version", "payable", "why"},
			},
			beyond: map[string][]string{"options": {"symbol", "code"}}},
		{name: "x402_check_balance", arguments: []string{"network", "asset"}, readOnly: true, open: true,
			answers: map[string][]string{
				"": {"next", "networks", "budget"}, "budget": {"perCall", "session", "day", "month"},
			}, beyond: map[string][]string{"": {"more", "channels"}}},
		{name: "x402_check_delegation", arguments: []string{"tokenAccount"}, more: []string{"network"},
			readOnly: true, open: true,
			answers: map[string][]string{"": {"next", "isActive", "delegate", "isOurAgent", "remainingAmount",
				"originalAmount", "tokenMint", "ownerTokenAccount", "frozen"}},
			beyond: map[string][]string{"": {"balance", "network"}}},
		{name: "x402_revoke_delegation", arguments: []string{"tokenAccount", "freeze"}, open: true,
			answers: map[string][]string{"": {"next", "network", "tokenAccount", "owner", "transaction",
				"command",
				"frozen"}}},
		{name: "x402_history", arguments: []string{"limit", "before", "url", "afterDate", "status",
			"paymentId", "offset", "length", "find", "evidence"}, readOnly: true,
			answers: map[string][]string{
				"": {"count", "transactions", "next", "totals", "evidence", "content", "contentType",
					"contentLength", "contentTruncated", "contentUri", "httpStatus", "amountPaid", "asset",
					"payTo", "facilitator"},
			},
			beyond: map[string][]string{
				"": {"contentBegin", "contentEnd", "contentOffset", "nextOffset", "found", "approvedAt",
					"upTo",
					"approvedBy"},
			}},
		{name: "x402_discover_services", arguments: []string{"query", "url", "network", "maxPrice", "limit"},
			readOnly: true, open: true,
			answers: map[string][]string{
				"": {"next", "count", "services", "source", "asOf"},
				"services": {"url", "type", "description", "price", "amount", "asset", "network", "scheme",
					"payTo", "payable", "why", "inputSchema"},
			}, beyond: map[string][]string{"services": {"output"}}},
		{name: "x402_propose_subscription",
			arguments: []string{"url", "every", "maxAmount", "until", "reason"},
			answers:   map[string][]string{"": {"next", "proposalId", "expires"}}},
		{name: "x402_setup_agent", readOnly: true, open: true,
			answers: map[string][]string{"": {"next", "ready", "locked", "addresses", "nextSteps"},
				"addresses": {"solana", "evm"}}},
	} {
		t.Run(want.name, func(t *testing.T) {
			i := slices.IndexFunc(list.Tools, func(tool struct {
				Meta                     map[string]any `json:"_meta"`
				Name, Title, Description string
				InputSchema              node
				OutputSchema             node
				Annotations              map[string]any
			}) bool {
				return tool.Name == want.name
			})
			require.GreaterOrEqual(t, i, 0)
			tool := list.Tools[i]
			require.NotEmpty(t, tool.Title)
			require.ElementsMatch(t, append(want.arguments, want.more...),
				slices.Collect(maps.Keys(tool.InputSchema.Properties)))
			for name, p := range tool.InputSchema.Properties {
				require.True(t, p.Description != "" || slices.Contains(selfEvident, name), name)
			}
			require.Equal(t, false, tool.InputSchema.AdditionalProperties)
			require.Equal(t, "object", tool.InputSchema.Type)
			require.Equal(t, "object", tool.OutputSchema.Type)

			for path, names := range want.beyond {
				want.answers[path] = append(slices.Clone(want.answers[path]), names...)
			}
			want.answers[""] = append(want.answers[""], "error", "message") // of the error form
			found := map[string][]string{}
			tool.OutputSchema.names("", found)
			require.Equal(t, sorted(want.answers), sorted(found))

			require.Equal(t, want.readOnly, tool.Annotations["readOnlyHint"])
			require.Equal(t, want.danger, tool.Annotations["destructiveHint"])
			require.Equal(t, want.open, tool.Annotations["openWorldHint"])
			require.Equal(t, want.readOnly, tool.Annotations["idempotentHint"])
			// what was paid for is not to be cut
			if slices.Contains(want.answers[""], "content") || want.name == "x402_pay_many" {
				require.EqualValues(t, map[string]any{"anthropic/maxResultSizeChars": 200_000.0}, tool.Meta)
			} else {
				require.Nil(t, tool.Meta)
			}
		})
	}
	require.Len(t, list.Tools, 12, "an old name is answered, not listed")
}

// selfEvident are arguments whose names say what they are.
var selfEvident = []string{"url", "headers", "body", "idempotencyKey", "tool", "arguments", "network",
	"query", "reason", "paymentId", "status", "length", "evidence"}

// node is as much of a JSON schema as these tests read.
type node struct {
	Type, Description    string
	Required             []string
	AnyOf                []*node
	Enum                 []string
	Properties           map[string]*node
	Items                *node
	AdditionalProperties any
}

func (n *node) names(path string, into map[string][]string) {
	if n.Items != nil {
		n = n.Items
	}
	for name, p := range n.Properties {
		into[path] = append(into[path], name)
		below := name
		if path != "" {
			below = path + "." + name
		}
		p.names(below, into)
	}
	for _, form := range n.AnyOf {
		for _, name := range form.Required {
			if !slices.Contains(into[path], name) {
				into[path] = append(into[path], name)
			}
		}
	}
}

func sorted(lists map[string][]string) map[string][]string {
	for path := range lists {
		lists[path] = slices.Sorted(slices.Values(lists[path]))
	}
	return lists
}

// A method that the schema offers is one that is sent, and states that it offers are those of the
// ledger.
func TestEnumsAreTrue(t *testing.T) {
	h := seller.New(seller.Options{})
	for _, method := range methods {
		require.NoError(t, h.Check(seller.Request{Method: method.(string), URL: "https://example.com/"}))
	}
	schema := inputSchema[HistoryIn]()
	for _, state := range schema.Properties["status"].Enum {
		_, err := HistoryIn{Status: state.(string)}.filter()
		require.NoError(t, err)
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
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(object, &members))
	return members[name]
}
