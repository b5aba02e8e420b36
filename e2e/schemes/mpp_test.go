package schemes

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// credential is presented to a path; change, where it is given, is made to it before.
func credential(t *testing.T, s *World, path string, c *wire.Challenge, payload json.RawMessage,
	change func(map[string]any)) (*http.Response, *x402.Settlement) {
	t.Helper()
	encoded := must.Get(wire.EncodePayload(c, c.Accepts[0], payload, nil))(t)
	if change != nil {
		var members map[string]any
		require.NoError(t, json.Unmarshal(encoded, &members))
		change(members)
		encoded = must.Get(json.Marshal(members))(t)
	}
	with := wire.Attach(c.Accepts[0].Dialect, encoded)
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, s.SellerURL+path, nil))(t)
	request.Header.Set(with.Header, with.Value)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response := must.Get(client.Do(request))(t)
	require.NoError(t, response.Body.Close())
	receipt := must.Get(wire.ReadSettlement(response.Header))(t)
	return response, receipt
}

func TestMPPPayment(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newEVMPayer(t, s, sandbox.USDC)
	order := func(c *wire.Challenge) x402.Authorization {
		a := must.Get(payer.Authorize(t.Context(), x402.Order{Requirement: c.Accepts[0], Asset: s.chain.Asset,
			Source: payer.Address(), Validity: time.Minute, Now: s.Now()}))(t)
		return a
	}
	c := testworld.Challenge(t, s.SellerURL+"/mpp/weather")
	require.Equal(t, x402.MPP, c.Accepts[0].Scheme)
	a := order(c)
	for name, change := range map[string]func(map[string]any){
		"another challenge's id": func(m map[string]any) { m["challenge"].(map[string]any)["id"] = "x" },
		"another realm":          func(m map[string]any) { m["challenge"].(map[string]any)["realm"] = "x" },
		"another request":        func(m map[string]any) { m["challenge"].(map[string]any)["request"] = "x" },
		"another nonce":          func(m map[string]any) { m["payload"].(map[string]any)["nonce"] = "0x00" },
		"another amount":         func(m map[string]any) { m["payload"].(map[string]any)["value"] = "1" },
	} {
		response, _ := credential(t, s, "/mpp/weather", c, a.Payload, change)
		require.Equal(t, 402, response.StatusCode, name)
	}
	require.Empty(t, s.Settlements())

	response, receipt := credential(t, s, "/mpp/weather", c, a.Payload, nil)
	require.Equal(t, 200, response.StatusCode)
	require.True(t, receipt.Success)
	require.Equal(t, s.Settlements()[0].Transaction, receipt.Transaction)
	again, _ := credential(t, s, "/mpp/weather", c, order(c).Payload, nil)
	require.Equal(t, 402, again.StatusCode, "one challenge, one payment")
	require.Len(t, s.Settlements(), 1)
}
