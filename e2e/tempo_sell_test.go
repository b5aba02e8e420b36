package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/paywall"
)

// tempoChain is a node of Tempo on this machine (e2e/lab/mpp/tempo.mjs), behind one that may lie.
type tempoChain struct {
	Node, Control, Network, PathUSD string

	behind string       // the URL of the node that may lie
	lies   atomic.Bool  // receipts have no events
	sent   atomic.Int64 // transactions
}

func startTempoChain(t *testing.T) *tempoChain {
	t.Helper()
	c := &tempoChain{}
	testlab.StartParty(t, "mpp/tempo.mjs", map[string]any{}, c)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		if bytes.Contains(question, []byte("eth_sendRawTransaction")) {
			c.sent.Add(1)
		}
		answer, err := http.Post(c.Node, "application/json", bytes.NewReader(question))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		var said map[string]any
		_ = json.NewDecoder(answer.Body).Decode(&said)
		if receipt, ok := said["result"].(map[string]any); ok && receipt["logs"] != nil && c.lies.Load() {
			receipt["logs"] = []any{}
		}
		_ = json.NewEncoder(w).Encode(said)
	}))
	t.Cleanup(server.Close)
	c.behind = server.URL
	return c
}

// ask asks the node itself.
func (c *tempoChain) ask(t *testing.T, result any, method string, params ...any) {
	t.Helper()
	question := must.Get(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method,
		"params": params}))(t)
	answer := must.Get(http.Post(c.Node, "application/json", bytes.NewReader(question)))(t)
	said := must.JSON[struct{ Result json.RawMessage }]([]byte(bodyOf(t, answer)))(t)
	require.NoError(t, json.Unmarshal(said.Result, result))
}

func (c *tempoChain) number(t *testing.T, hex string) int64 {
	t.Helper()
	n, ok := new(big.Int).SetString(hex, 0)
	require.True(t, ok, hex)
	return n.Int64()
}

func (c *tempoChain) balance(t *testing.T, address string) int64 {
	t.Helper()
	var said string
	c.ask(t, &said, "eth_call", map[string]string{"to": c.PathUSD,
		"data": "0x70a08231" + strings.Repeat("0", 24) + strings.TrimPrefix(address, "0x")}, "latest")
	return c.number(t, said)
}

// mppx's client buys on Tempo from a handler of ours, which settles by a node and no facilitator.
func TestMppxPaysOurPaywallOnTempo(t *testing.T) {
	chain := startTempoChain(t)
	const payTo = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	const buyer = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A" // whose key is 32 times 0x11
	fund := fmt.Sprintf(`{"fund":%q,"amount":"1000000"}`, buyer)
	bodyOf(t, must.Get(http.Post(chain.Control, "application/json", strings.NewReader(fund)))(t))
	sells := must.Get(paywall.New(paywall.Options{MPP: true, Store: testworld.NewBook(t, t.TempDir()),
		Nodes: map[string]string{chain.Network: chain.behind}, Tools: []paywall.Tool{{Name: "report",
			Accepts: []paywall.Option{{Network: chain.Network, Asset: "pathUSD", PayTo: payTo,
				Price: "0.001"}}}}}))(t)
	t.Cleanup(func() { require.NoError(t, sells.Close(context.Background())) })
	web := httptest.NewServer(sells.HTTP("report", http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("warmer")) })))
	t.Cleanup(func() { web.Close(); http.DefaultClient.CloseIdleConnections() })
	buy := func(keep bool) (paid mppPaid) {
		testlab.StartParty(t, "mpp/payer.mjs", map[string]any{"url": web.URL, "tempo": chain.Node,
			"key": "0x" + strings.Repeat("11", 32), "keep": keep}, &paid)
		return paid
	}
	show := func(credential string) (status int, body string) {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL, nil))(t)
		request.Header.Set("Authorization", credential)
		answer := must.Get(http.DefaultClient.Do(request))(t)
		return answer.StatusCode, bodyOf(t, answer)
	}

	paid := buy(false)
	require.Equal(t, 200, paid.Status, "%+v", paid)
	require.Equal(t, "warmer", paid.Body)
	require.Equal(t, "tempo success", paid.Receipt.Method+" "+paid.Receipt.Status)
	var receipt struct{ GasUsed, EffectiveGasPrice string }
	chain.ask(t, &receipt, "eth_getTransactionReceipt", paid.Receipt.Reference)
	const perUnit = 1_000_000_000_000
	gas := chain.number(t, receipt.GasUsed) * chain.number(t, receipt.EffectiveGasPrice)
	left := 1_000_000 - price - (gas+perUnit-1)/perUnit
	require.Equal(t, left, chain.balance(t, buyer))
	require.Equal(t, int64(price), chain.balance(t, payTo))

	status, body := show(paid.Credential)
	require.Equal(t, 409, status, body)
	require.Equal(t, left, chain.balance(t, buyer))

	// what was signed for one challenge, as the answer to another
	sent := chain.sent.Load()
	kept := buy(true)
	text := must.Get(base64.RawURLEncoding.DecodeString(kept.Credential[len("Payment "):]))(t)
	other := bytes.Replace(text, []byte(`"id":"`), []byte(`"id":"X`), 1)
	status, body = show("Payment " + base64.RawURLEncoding.EncodeToString(other))
	require.Equal(t, 402, status)
	require.Contains(t, body, "its memo is not the challenge's")
	require.Equal(t, sent, chain.sent.Load())
	status, body = show(kept.Credential)
	require.Equal(t, 200, status, body)
	require.Equal(t, int64(2*price), chain.balance(t, payTo))

	chain.lies.Store(true)
	paid = buy(false)
	require.Equal(t, 502, paid.Status, "%+v", paid)
	require.NotContains(t, paid.Body, "warmer")
	require.Contains(t, paid.Body, "do not pay again")
	status, body = show(paid.Credential)
	require.Equal(t, 409, status, body)
}
