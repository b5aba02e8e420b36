package tools

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/scheme/mpp"
	"x402-wallet/scheme/tempo"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// someTempo pays on Tempo, and has a dollar there without asking a node.
type someTempo struct{ tempo.Payer }

func (someTempo) Funds(_ context.Context, _ string, _ x402.AssetInfo) (x402.Funds, error) {
	dollar := money.NewAmount(1_000_000)
	return x402.Funds{Source: "0x1", Balance: dollar, Free: dollar, ReadAt: time.Now()}, nil
}

// paysMPP lets the wallet pay charges on EVM and on Tempo.
func (w *world) paysMPP() {
	e := w.wallet.Engine
	onTempo := evm.New(evm.Options{Signer: w.keys.evm,
		RPC:  map[string]string{x402.TempoMainnet: "http://127.0.0.1:1"},
		HTTP: seller.NodeClient(nil, ""), Now: time.Now})
	e.Ways = append(e.Ways, mpp.Way{}, tempo.Way{})
	e.Policy.Schemes = append(e.Policy.Schemes, x402.MPP, x402.Tempo)
	e.Schemes[pay.SchemeKey{Scheme: x402.MPP, Family: "eip155"}] = e.Schemes[exactEVM]
	e.Schemes[pay.SchemeKey{Scheme: x402.Tempo, Family: "eip155"}] = someTempo{tempo.NewPayer(onTempo)}
}

// directory is one of MPP.
func (w *world) directory(t *testing.T, read func() string) {
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(out, read())
	}))
	t.Cleanup(s.Close)
	w.wallet.Facilitators = facilitator.New(facilitator.Options{HTTP: seller.NodeClient(w.Loopback, ""),
		List:        []facilitator.Facilitator{{Name: "sandbox", URL: w.FacilitatorURL}},
		Directories: []string{s.URL}})
}

func mppSample(t *testing.T) string {
	return string(must.Get(os.ReadFile("../facilitator/testdata/mpp-services.json"))(t))
}

const usdcOnBase = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"

func TestDiscoverInADirectoryOfMPP(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.paysMPP()
	asset, _ := w.wallet.Engine.Assets.Named(sandbox.EVM, "")
	w.directory(t, func() string { return strings.ReplaceAll(mppSample(t), usdcOnBase, asset.Address) })
	c := w.serve(t)
	found := func(arguments map[string]any) (rows [][]any) {
		for _, s := range services(c.ok("x402_discover_services", arguments)) {
			rows = append(rows, []any{s["url"], s["price"], s["payable"]})
		}
		return rows
	}
	const tides, maps = "https://api.tides.example/v1", "https://maps.example/mpp"
	require.Equal(t, [][]any{{maps + "/tile", "$0.001", true}, {tides + "/forecast", "$0.002", true},
		{tides + "/tides/:harbour", "$0.025", true}}, found(map[string]any{"query": "data"}), "by price")
	require.Equal(t, [][]any{{tides + "/forecast", "$0.002", true}},
		found(map[string]any{"query": "ocean", "limit": 1}))
	require.Equal(t, [][]any{{tides + "/forecast", "$0.002", true}},
		found(map[string]any{"query": "data", "network": "tempo", "maxPrice": "$0.01"}))
	out := c.ok("x402_discover_services", map[string]any{"query": "forecast"})
	require.Contains(t, out["source"], "sandbox, 127.0.0.1:")
	require.Equal(t, map[string]any{"url": tides + "/forecast", "type": "http",
		"description": "Tides: A forecast",
		"price":       "$0.002", "amount": "2000", "asset": "0x20C000000000000000000000b9537d11c60E8b50",
		"network": x402.TempoMainnet, "scheme": "tempo", "payTo": "", "payable": true,
		"inputSchema": map[string]any{"method": "POST",
			"docs": "https://tides.example/docs?topic=POST%20%2Fv1%2Fforecast"}},
		services(out)[0])

	for query, why := range map[string]string{
		"chat":   "MPP tempo/session: it is paid by vouchers from a channel",
		"letter": "MPP stripe/charge: it is paid by a token of Stripe's",
		"news":   "its terms are shown when it is called",
		"loud":   "MPP lightning/charge: it is paid over Lightning"} {
		one := services(c.ok("x402_discover_services", map[string]any{"query": query}))
		require.Len(t, one, 1, query)
		require.Equal(t, []any{false, "", ""},
			[]any{one[0]["payable"], one[0]["price"], one[0]["payTo"]}, query)
		require.Contains(t, one[0]["why"], why)
		require.NotContains(t, one[0], "x", "no member of theirs")
	}
	all := found(map[string]any{"limit": 25})
	paid := true
	for i, row := range all {
		require.True(t, paid || row[2] == false, "what cannot be paid comes last: %v", all)
		paid = row[2].(bool)
		if paid && i > 0 {
			require.LessOrEqual(t, dollars(all[i-1][1].(string)[1:]), dollars(row[1].(string)[1:]))
		}
	}
	raw := string(c.ask("tools/call", map[string]any{"name": "x402_discover_services",
		"arguments": map[string]any{"query": "loud"}}))
	require.NotContains(t, raw, "\u202e")
	require.NotContains(t, raw, "\u200b")
	require.Zero(t, w.Signatures())
}

// The engine says what it would say of a seller's challenge. Rules about payees say nothing, because the
// list does not say who is paid.
func TestTheEngineWeighsADirectory(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.paysMPP()
	text := ""
	asset, _ := w.wallet.Engine.Assets.Named(sandbox.EVM, "")
	one := func(currency, amount string) map[string]any {
		text = fmt.Sprintf(`{"version":1,"services":[{"name":"A","serviceUrl":"https://a.example","methods":{},`+
			`"endpoints":[{"method":"GET","path":"/zzz","payment":{"intent":"charge","method":"evm",`+
			`"currency":%q,"amount":%q}}]}]}`, currency, amount)
		w.directory(t, func() string { return text })
		return services(w.serve(t).ok("x402_discover_services", map[string]any{"query": "zzz"}))[0]
	}
	e := w.wallet.Engine
	e.Rules.Payees, e.Rules.NewPayee, e.Rules.PayeeChange = []string{"0x" + strings.Repeat("1", 40)},
		budget.RuleRefuse, budget.RuleRefuse
	require.Equal(t, []any{true, "$0.001", ""}, []any{one(asset.Address, "1000")["payable"],
		one(asset.Address, "1000")["price"], one(asset.Address, "1000")["payTo"]})
	for why, s := range map[string]map[string]any{
		"above the owner's limit": one(asset.Address, "5000000"),
		"amount is 0":             one(asset.Address, "0"),
		"another chain":           one(usdcOnBase, "1000"),
		"canonical decimal":       one(asset.Address, "-1"),
		"limit":                   one(asset.Address, "1"+strings.Repeat("0", 40)),
		"256 bits":                one(asset.Address, strings.Repeat("9", 78)),
	} {
		require.Equal(t, false, s["payable"], why)
		require.Contains(t, s["why"], why)
	}
	e.Rules.DenyHosts = []string{"a.example"}
	require.Contains(t, one(asset.Address, "1000")["why"], "the owner does not allow")
	e.Rules.DenyHosts, e.Policy.Schemes = nil, []string{"exact"}
	require.Contains(t, one(asset.Address, "1000")["why"], "policy.schemes")
}

// A service of many endpoints does not push the others off, and no address leads where nobody may be sent.
func TestHostileDirectory(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.paysMPP()
	asset, _ := w.wallet.Engine.Assets.Named(sandbox.EVM, "")
	service := func(url string, endpoints int) string {
		list := []string{}
		for i := range endpoints {
			list = append(list, fmt.Sprintf(`{"method":"GET","path":"/%d","description":%q,"payment":{"intent":"charge",`+
				`"method":"evm","currency":%q,"amount":"1"}}`, i, strings.Repeat("é", 200), asset.Address))
		}
		return fmt.Sprintf(`{"serviceUrl":%q,"endpoints":[%s]}`, url, strings.Join(list, ","))
	}
	list := []string{service("https://flood.example", 200)}
	for _, bad := range []string{"https://192.168.1.1", "https://169.254.169.254", "http://plain.example",
		"https://user:pass@a.example", "https://xn--exmple-cua.example:99999", "https://"} {
		list = append(list, service(bad, 1), strings.Replace(service(bad, 1), `"evm"`, `"stripe"`, 1))
	}
	list = append(list, service("https://b.example", 1), service("https://c.example", 1))
	w.directory(t, func() string { return `{"version":1,"services":[` + strings.Join(list, ",") + `]}` })
	out := services(w.serve(t).ok("x402_discover_services", map[string]any{"limit": 25}))
	hosts := map[string]int{}
	for _, s := range out {
		host := strings.Split(s["url"].(string), "/")[2]
		hosts[host]++
		require.LessOrEqual(t, len(s["description"].(string)), maxPitch+len("…"))
	}
	for _, host := range []string{"b.example", "c.example"} {
		require.Equal(t, 1, hosts[host], hosts)
	}
	for _, bad := range []string{"192.168.1.1", "169.254.169.254", "plain.example", "a.example",
		"user:pass@a.example", "xn--exmple-cua.example:99999", "0"} {
		require.NotContains(t, hosts, bad)
	}
}

// An OpenAPI document of a seller has the same offers (draft-payment-discovery-00).
func TestDiscoverOffersAtAnOrigin(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	w.paysMPP()
	asset, _ := w.wallet.Engine.Assets.Named(sandbox.EVM, "")
	document := fmt.Sprintf(`{"openapi":"3.1.0","paths":{
		"/two/{id}":{"post":{"summary":"Two","x-payment-info":{"offers":[
			{"intent":"charge","method":"stripe","amount":"5","currency":"usd"},
			{"intent":"charge","method":"evm","amount":"3000","currency":%[1]q}]}}},
		"/flat":{"get":{"summary":"Flat",
			"x-payment-info":{"intent":"charge","method":"evm","amount":"1000","currency":%[1]q}}},
		"/dynamic":{"get":{
			"x-payment-info":{"intent":"charge","method":"evm","amount":null,"currency":%[1]q}}},
		"/card":{"get":{"x-payment-info":{"offers":[{"intent":"charge","method":"card","amount":"5","currency":"usd"}]}}}}}`,
		asset.Address)
	s := w.shop(t, map[string]string{"/openapi.json": document})
	list := services(w.serve(t).ok("x402_discover_services", map[string]any{"url": s.URL}))
	var rows []string
	for _, one := range list {
		rows = append(rows, fmt.Sprint(strings.TrimPrefix(one["url"].(string), s.URL), " ", one["price"], " ",
			one["payable"], " ", one["scheme"]))
	}
	require.Equal(t, []string{"/flat $0.001 true mpp", "/two/{id} $0.003 true mpp", "/card  false ",
		"/dynamic  false "},
		rows)
	require.Equal(t, "POST", list[1]["inputSchema"].(map[string]any)["method"])
	require.Contains(t, list[2]["why"], "card's network token")
	require.Contains(t, list[3]["why"], "when it is called")
}
