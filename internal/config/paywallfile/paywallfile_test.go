package paywallfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
)

// An example of a paywall's file.
const paywallFile = `
command     = ["npx", "plain-mcp-server"]
listen      = ""
network     = "eip155:8453"
pay_to      = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
version     = 2
dialect     = "result"
verify_only = false
[tools.search]
price = "0.01"
[tools.report]
accepts = [
  { network = "eip155:8453", pay_to = "0x1", price = "0.05" }, { network = "solana", price = "0.05" } ]
[tools."Old.Tool"]
amount = "10000"
asset = "USDC"
network = "base-sepolia"
payment_flow = "upfront"
max_timeout_seconds = 60
[[facilitators]]
url = "https://facilitator.example"
`

// shop is what a file of that name says.
func shop(t *testing.T, text string) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return Load(path)
}

func TestPaywall(t *testing.T) {
	p := must.Get(shop(t, paywallFile))(t)
	const ours = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	require.Equal(t, &File{
		Command: []string{"npx", "plain-mcp-server"}, Version: 2, Dialect: "result",
		MaxSessions: 1000, MaxRequest: 64 << 10,
		Facilitators: []config.Facilitator{{Name: "facilitator.example", URL: "https://facilitator.example",
			Auth: "none"}},
		Tools: []Tool{
			{Name: "Old.Tool", Upfront: true, MaxTimeout: time.Minute,
				Accepts: []Option{{Network: "eip155:84532", Amount: "10000", Asset: "USDC"}}},
			{Name: "report", Accepts: []Option{{Network: config.Base, PayTo: "0x1", Price: "0.05"},
				{Network: config.SolanaMainnet, Price: "0.05"}}},
			{Name: "search", Accepts: []Option{{Network: config.Base, PayTo: ours, Price: "0.01"}}},
		},
	}, p)
	more := strings.Replace(paywallFile, "[tools.search]\nprice = \"0.01\"", `sign_offers = true
receipt_transaction = true
origin = "https://shop.example"
[tools.search]
price = "0.01"
scheme = "upto"
permit2 = true
per_kilobyte = "0.001"
payment_identifier = "required"
access = "24h"`, 1)
	p = must.Get(shop(t, more))(t)
	require.True(t, p.SignOffers && p.ReceiptTransaction)
	require.Equal(t, "https://shop.example", p.Origin)
	require.Equal(t, Tool{Name: "search", PerKilobyte: "0.001", RequireIdentifier: true,
		Access: 24 * time.Hour, Accepts: []Option{{Network: config.Base, PayTo: ours, Price: "0.01",
			Scheme: "upto", Permit2: true}}}, p.Tools[2])
	p = must.Get(shop(t, strings.Replace(paywallFile, "[tools.search]\nprice = \"0.01\"", `claim_after = "30m"
claim_above = "5"
[tools.search]
price = "0.01"
scheme = "batch-settlement"
min_deposit = "0.50"
withdraw_delay = "2h"`, 1)))(t)
	require.Equal(t, []any{30 * time.Minute, "5"}, []any{p.ClaimAfter, p.ClaimAbove})
	require.Equal(t, []Option{{Network: config.Base, PayTo: ours, Price: "0.01", Scheme: "batch-settlement",
		MinDeposit: "0.50", WithdrawDelay: 2 * time.Hour}}, p.Tools[2].Accepts)
	older := strings.NewReplacer(`"result"`, `"x402-mcp"`, "version     = 2", "")
	p = must.Get(shop(t, older.Replace(paywallFile)))(t)
	require.Equal(t, 1, p.Version)
}

// Resources, prompts and sessions are priced by the keys of a tool.
func TestWaresArePricedAsToolsAre(t *testing.T) {
	p := must.Get(shop(t, strings.Replace(paywallFile, "[tools.search]\nprice = \"0.01\"", `
[resources."file:///paid/*"]
price = "0.01"
description = "archive"
max_timeout_seconds = 60
[resources."file:///One Book"]
amount = "10000"
asset = "USDC"
network = "base-sepolia"
pay_to = "0x1"
[prompts.search]
accepts = [ { network = "solana", price = "0.05" } ]
[entry]
price = "0.02"`, 1)))(t)
	const ours = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	require.Equal(t, []Tool{
		{Kind: "resource", Name: "file:///One Book", Accepts: []Option{{Network: "eip155:84532", PayTo: "0x1",
			Amount: "10000", Asset: "USDC"}}},
		{Kind: "resource", Name: "file:///paid/*", Description: "archive", MaxTimeout: time.Minute,
			Accepts: []Option{{Network: config.Base, PayTo: ours, Price: "0.01"}}},
		{Kind: "prompt", Name: "search", Accepts: []Option{{Network: config.SolanaMainnet, Price: "0.05"}}},
		{Kind: "entry", Accepts: []Option{{Network: config.Base, PayTo: ours, Price: "0.02"}}},
	}, p.Tools[2:])
	require.True(t, p.NeedsWallet(), "one is paid to the wallet's own address")

	for text, fault := range map[string]string{
		"[prompts.x]\nprize = \"1\"":                              "prompts.x.prize: there is no such key",
		"[resources.\"a b\"]":                                     `resources."a b": needs a price`,
		"[entry]":                                                 "entry: needs a price",
		"[entry.x]\nprice = \"1\"":                                "entry.x: there is no such key",
		"[prompts.x]\nprice = 1":                                  "is written as text",
		"[prompts.x]\nprice = \"1\"\namount = \"1\"":              "either price",
		"[entry]\nprice = \"1\"\ndiscoverable = true":             "entry.discoverable",
		"[resources.x]\nprice = \"1\"\ndiscoverable = true":       "is for tools",
		"[prompts.x]\nprice = \"1\"\naccepts = [ {price=\"1\"} ]": "either accepts",
	} {
		_, err := shop(t, "command = [\"x\"]\nnetwork = \"base\"\n"+text+"\n")
		require.ErrorContains(t, err, fault)
	}
}

func TestPaywallFaults(t *testing.T) {
	change := func(old, by string) string {
		require.Contains(t, paywallFile, old)
		return strings.Replace(paywallFile, old, by, 1)
	}
	for name, c := range map[string][2]string{
		"a key that is none": {change("price = \"0.01\"", "prize = \"0.01\""),
			"shop.toml line 10: tools.search.prize: there is no such key"},
		"another letter case": {change("price = \"0.01\"", "Price = \"0.01\""),
			"is spelt tools.search.price"},
		"and in a list": {change(`price = "0.05" }, {`, `price = "0.05", Pay_To = "0x2" }, {`),
			"is spelt tools.report.accepts.0.pay_to"},
		"a number": {change("price = \"0.01\"", "price = 0.01"),
			`is written as text, not as a number: "0.01"`},
		"no server": {change(`command     = ["npx", "plain-mcp-server"]`, ""),
			"which server is behind it"},
		"two servers": {`url = "https://a.example/mcp"` + "\n" + paywallFile,
			"which server is behind it"},
		"a plain URL": {change(`command     = ["npx", "plain-mcp-server"]`,
			`url = "http://a.example/mcp"`), "must be https://"},
		"everybody's address": {change(`listen      = ""`, `listen = "0.0.0.0:4040"`),
			"an address of this machine"},
		"a name for an address": {change(`listen      = ""`, `listen = "shop.example:4040"`),
			"an address of this machine"},
		"no port": {change(`listen      = ""`, `listen = "127.0.0.1"`),
			"an address of this machine"},
		"no such port": {change(`listen      = ""`, `listen = "127.0.0.1:65536"`),
			"an address of this machine"},
		"a dialect that is none": {change(`"result"`, `"french"`),
			`it must be "result" or "error" or "x402-mcp" or "cloudflare"`},
		"no sessions": {"max_sessions = 0\n" + paywallFile, "it must be from 10 to 100000"},
		"large requests": {"max_request_bytes = 33554432\n" + paywallFile,
			"it must be from 4096 to 16777216"},
		"version 3": {change("version     = 2", "version = 3"), "it must be from 1 to 2"},
		"a tool that is a price": {`command = ["a"]` + "\nnetwork = \"base\"\n[tools]\nsearch = \"0.01\"\n",
			"shop.toml line 4: tools.search: must be a table, not a string"},
		"tools in a list": {`command = ["a"]` + "\n[[tools]]\nname = \"search\"\n",
			"tools: is one table, with single brackets, not [[tools]]"},
		"a price as a table": {`command = ["a"]` + "\n[tools.search.price]\nusd = \"1\"\n",
			"tools.search.price: is a value, not a table"},
		"accepts is no list": {`command = ["a"]` + "\n[tools.search]\naccepts = { price = \"1\" }\n",
			"tools.search.accepts: must be a list like [ { … } ], not an inline table"},
		"no price": {change("price = \"0.01\"", ""), "needs a price"},
		"a price and an amount": {change("price = \"0.01\"", "price = \"0.01\"\namount = \"1\""),
			"either price"},
		"a price and accepts":  {change("accepts = [", "price = \"1\"\naccepts = ["), "either accepts"},
		"no network":           {change(`network     = "eip155:8453"`, ""), "needs a network"},
		"a network of no kind": {change(`"eip155:8453"`, `"moon"`), "is no network we know"},
		"no tools":             {`command = ["a"]`, "nothing is charged for"},
		"a flow that is none":  {change(`"upfront"`, `"later"`), `it must be "authorization" or "upfront"`},
		"a scheme that is none": {change("price = \"0.01\"", "price = \"0.01\"\nscheme = \"batch\""),
			`tools.search.scheme: must be "exact", "upto" or "batch-settlement"`},
		"an identifier that is none": {change("price = \"0.01\"",
			"price = \"0.01\"\npayment_identifier = \"yes\""),
			`it must be "optional" or "required"`},
		"access from nowhere": {change("price = \"0.01\"", "price = \"0.01\"\naccess = \"1h\""),
			"needs an origin"},
		"a transaction in no receipt": {"receipt_transaction = true\n" + paywallFile, "is for sign_offers"},
		"a second": {change("max_timeout_seconds = 60", "max_timeout_seconds = 1"),
			"it must be from 15 to 3600"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := shop(t, c[0])
			require.ErrorContains(t, err, c[1], name)
			require.ErrorContains(t, err, "shop.toml", name)
		})
	}
}

func TestAPaywallsDiscovery(t *testing.T) {
	const file = "command = ['x']\nnetwork = 'base'\norigin = 'https://shop.example'\n" +
		"pay_to = '0x209693Bc6afc0C5328bA36FaF03C514EF312287C'\n" +
		"listen = '127.0.0.1:0'\ndiscovery_list = true\n[tools.search]\nprice = '0.01'\n"
	p := must.Get(shop(t, file+"discoverable = true\nexample_input = '{\"q\":1}'\nexample_output = '{}'"))(t)
	require.True(t, p.DiscoveryList && p.Tools[0].Discoverable)
	require.Equal(t, []string{`{"q":1}`, "{}"}, []string{p.Tools[0].ExampleInput, p.Tools[0].ExampleOutput})
	for more, problem := range map[string]string{
		"":                     "needs listen, and a tool",
		"example_input = '{}'": "need discoverable",
		"discoverable = true\nexample_output = '[]'":   "is no JSON object",
		"discoverable = true\nexample_input = 'x'":     "is no JSON object",
		"discoverable = true\n[[facilitators]]\nx = 1": "no such key",
	} {
		require.ErrorContains(t, must.Err(shop(t, file+more)), problem, more)
	}
}

func TestOriginsOfPages(t *testing.T) {
	const file = "command = ['x']\nnetwork = 'base'\npay_to = '0x209693Bc6afc0C5328bA36FaF03C514EF312287C'\n"
	const sells = "[tools.search]\nprice = '0.01'\n"
	for origin, isGood := range map[string]bool{"https://app.example": true, "http://localhost:6274": true,
		"*":               true,
		"http://[::1]:80": false, "https://app.example/": false, "app.example": false,
		"https://App.example":     false,
		"https://app.example:443": false, "null": false, "": false, "https://*.example": false,
		"ftp://a.example":      false,
		"https://me@a.example": false} {
		p, err := shop(t, file+"listen = '127.0.0.1:0'\norigins = ['"+origin+"']\n"+sells)
		if isGood {
			require.NoError(t, err, origin)
			require.Equal(t, []string{origin}, p.Origins)
		} else {
			require.ErrorContains(t, err, "origins: ", origin)
		}
	}
	_, err := shop(t, file+"origins = ['*']\n"+sells)
	require.ErrorContains(t, err, "needs listen")
}
