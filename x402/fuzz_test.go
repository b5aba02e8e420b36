package x402

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/money"
)

// The seeds of these targets lie in testdata/fuzz; `go test` runs them every time.

// Whatever a seller sends: no panic, an error with one of our four codes, or a challenge of
// positive amounts whose every option can be answered.
func FuzzReadChallenge(f *testing.F) {
	f.Fuzz(func(t *testing.T, required, other, amount, auth string, body []byte) {
		header := http.Header{}
		for name, value := range map[string]string{"PAYMENT-REQUIRED": required, "X-PAYMENT-REQUIRED": other,
			"X-PAYMENT-AMOUNT": amount, "WWW-Authenticate": auth} {
			header.Set(name, value)
		}
		header.Set("X-Payment-Recipient", payeeSVM)
		header.Set("X-Payment-Token", devnetUSDC)
		header.Set("X-Payment-Network", solanaDevnet)
		c, err := ReadChallenge(402, header, body)
		if err != nil {
			require.Nil(t, c)
			require.Contains(t, []Code{noRequirements, InvalidRequirement, ResponseMalformed,
				ResponseTooLarge}, AsError(err).Code)
			return
		}
		options := len(c.Accepts) + len(c.Unreadable)
		require.True(t, 0 < options && options <= MaxAccepts)
		for _, r := range c.Accepts {
			require.False(t, r.Amount.IsZero())
			require.Positive(t, r.MaxTimeout)
			network, ok := Network(r.NetworkName)
			require.True(t, ok && network == r.Network)
			payload, err := EncodePayload(c, r, json.RawMessage(`{}`), nil)
			require.NoError(t, err)
			require.NoError(t, DecodeStrict(payload, MaxBody, nil))
			require.True(t, c.Version == 1 || bytes.Contains(payload, RequirementJSON(r)))
		}
	})
}

// Whatever an MCP server sends: the same, and nothing is asked by what is no error and has no word
// for it.
func FuzzReadMCP(f *testing.F) {
	f.Fuzz(func(t *testing.T, result []byte, code int64, data []byte) {
		m := MCPMessage{Result: result, Code: code, Data: data}
		if len(result) == 0 {
			m.Result = nil
		}
		if s, err := ReadMCPSettlement(m); err == nil && s != nil {
			requireSettlement(t, s)
		}
		c, err := ReadMCPChallenge(m)
		if err != nil {
			require.Nil(t, c)
			require.Contains(t, []Code{noRequirements, InvalidRequirement, ResponseMalformed,
				ResponseTooLarge}, AsError(err).Code)
			return
		}
		if c == nil {
			return
		}
		require.True(t, c.Dialect.MCP())
		require.True(t, json.Valid(m.Result) || (m.Result == nil && json.Valid(m.Data)))
		for _, r := range c.Accepts {
			require.False(t, r.Amount.IsZero())
			payload, err := EncodePayload(c, r, json.RawMessage(`{}`), nil)
			require.NoError(t, err)
			require.NotEmpty(t, Attach(c.Dialect, payload).Meta)
			require.True(t, c.Version == 1 || bytes.Contains(payload, r.Raw))
		}
	})
}

func FuzzReadSettlement(f *testing.F) {
	f.Fuzz(func(t *testing.T, v2, v1 string, body []byte) {
		header := http.Header{}
		header.Set("PAYMENT-RESPONSE", v2)
		header.Set("X-PAYMENT-RESPONSE", v1)
		if s, err := ReadSettlement(header); err == nil && s != nil {
			requireSettlement(t, s)
		}
		if s, err := DecodeSettlement(body); err == nil {
			requireSettlement(t, s)
		}
	})
}

func requireSettlement(t *testing.T, s *Settlement) {
	var said map[string]any
	require.NoError(t, json.Unmarshal(s.Raw, &said))
	require.Equal(t, said["success"], s.Success)
	require.LessOrEqual(t, len(s.Transaction), maxIdentifier)
	if s.Amount != "" {
		_, err := money.ParseAmount(s.Amount)
		require.NoError(t, err)
	}
}

// What Strict accepts, encoding/json reads too, and reads in one way only: a struct gets what
// stands under the exact key.
func FuzzStrict(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		strict := DecodeStrict(data, MaxBody, nil)
		if strict == nil {
			require.True(t, json.Valid(data))
		}
		type probe struct {
			Amount json.RawMessage `json:"amount"`
			Deep   *struct {
				PayTo json.RawMessage `json:"payTo"`
			} `json:"deep"`
		}
		var p probe
		if DecodeStrict(data, MaxBody, &p) != nil {
			return
		}
		require.NoError(t, strict)
		var m map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &m))
		require.Equal(t, string(m["amount"]), string(p.Amount))
		if p.Deep != nil {
			require.NoError(t, json.Unmarshal(m["deep"], &m))
			require.Equal(t, string(m["payTo"]), string(p.Deep.PayTo))
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var first, second any
		require.NoError(t, decoder.Decode(&first))
		again, err := json.Marshal(first)
		require.NoError(t, err)
		decoder = json.NewDecoder(bytes.NewReader(again))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&second))
		require.True(t, reflect.DeepEqual(first, second))
	})
}

// An amount that is accepted is the canonical decimal that was sent, more than 0, and fits Solana's
// 64 bits there.
func FuzzAmount(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, solana bool) {
		network := "eip155:8453"
		if solana {
			network = solanaDevnet
		}
		a, err := object{"amount": json.RawMessage(text)}.amount("amount", network)
		if err != nil {
			return
		}
		var said string
		require.NoError(t, json.Unmarshal([]byte(text), &said))
		require.Equal(t, said, a.String())
		require.False(t, a.IsZero())
		_, fits := a.Uint64()
		require.True(t, fits || !solana)
	})
}
