package tools

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// What the wallet fills in for a payment channel is not the agent's to see.
func TestReservedArgumentsAreHidden(t *testing.T) {
	var schema any
	given := `{"type":"object","properties":{"text":{"type":"string"},"__nuwa_auth":{"type":"string"},"__nuwa_payment":{"type":"object"}},"required":["text"]}`
	require.NoError(t, json.Unmarshal([]byte(given), &schema))
	shown := must.Get(json.Marshal(withoutReserved(schema)))(t)
	require.JSONEq(t, `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`,
		string(shown))
	again := must.Get(json.Marshal(schema))(t)
	require.JSONEq(t, given, string(again), "the server's own is left as it is")
	require.Equal(t, "x", withoutReserved("x"))
}
