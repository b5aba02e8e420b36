package wire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
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
		header.Set("X-Payment-Network", x402.SolanaDevnet)
		c, err := ReadChallenge(402, header, body)
		if err != nil {
			require.Nil(t, c)
			require.Contains(t, []x402.Code{x402.NoRequirements, x402.InvalidRequirement,
				x402.ResponseMalformed,
				x402.ResponseTooLarge}, x402.AsError(err).Code)
			return
		}
		options := len(c.Accepts) + len(c.Unreadable)
		require.True(t, 0 < options && options <= x402.MaxAccepts)
		for _, r := range c.Accepts {
			require.False(t, r.Amount.IsZero())
			require.Positive(t, r.MaxTimeout)
			network, ok := x402.Network(r.NetworkName)
			require.True(t, ok && network == r.Network)
			payload := must.Get(EncodePayload(c, r, json.RawMessage(`{}`), nil))(t)
			require.NoError(t, x402.DecodeStrict(payload, x402.MaxBody, nil))
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
			require.Contains(t, []x402.Code{x402.NoRequirements, x402.InvalidRequirement,
				x402.ResponseMalformed,
				x402.ResponseTooLarge}, x402.AsError(err).Code)
			return
		}
		if c == nil {
			return
		}
		require.True(t, c.Dialect.MCP())
		require.True(t, json.Valid(m.Result) || (m.Result == nil && json.Valid(m.Data)))
		for _, r := range c.Accepts {
			require.False(t, r.Amount.IsZero())
			payload := must.Get(EncodePayload(c, r, json.RawMessage(`{}`), nil))(t)
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

func requireSettlement(t *testing.T, s *x402.Settlement) {
	said := must.JSON[map[string]any](s.Raw)(t)
	require.Equal(t, said["success"], s.Success)
	require.LessOrEqual(t, len(s.Transaction), x402.MaxIdentifier)
	if s.Amount != "" {
		must.Get(money.ParseAmount(s.Amount))(t)
	}
}
