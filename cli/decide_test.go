package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

func TestTermsSayWhoAsks(t *testing.T) {
	for _, a := range []history.Approval{{Price: 1, PayTo: "0xpayee", Amount: money.NewAmount(1)}, {}} {
		nameless := len(termsOf(a))
		a.Agent = "ann"
		require.Contains(t, termsOf(a), [2]string{"asked by", "ann"})
		require.Len(t, termsOf(a), nameless+1)
		text, err := json.Marshal(shown(a))
		require.NoError(t, err)
		require.Contains(t, string(text), `"agent":"ann"`)
	}
}
