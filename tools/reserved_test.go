package tools

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the wallet fills in for a payment channel is not the agent's to see.
func TestReservedArgumentsAreHidden(t *testing.T) {
	var schema any
	given := `{"type":"object","properties":{"text":{"type":"string"},"__nuwa_auth":{"type":"string"},"__nuwa_payment":{"type":"object"}},"required":["text"]}`
	require.NoError(t, json.Unmarshal([]byte(given), &schema))
	shown, err := json.Marshal(withoutReserved(schema))
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`,
		string(shown))
	again, err := json.Marshal(schema)
	require.NoError(t, err)
	require.JSONEq(t, given, string(again), "the server's own is left as it is")
	require.Equal(t, "x", withoutReserved("x"))
}
