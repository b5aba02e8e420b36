package facilitator

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/x402"
)

// Whatever a facilitator answers to /settle: no panic, never "not sent", and settled only where it
// says so, with a transaction.
func FuzzJudge(f *testing.F) {
	for _, body := range []string{yes, `{"success":true}`,
		`{"success":false,"errorReason":"insufficient_funds"}`,
		`{"success":false,"errorReason":"settlement_pending","transaction":"0x1"}`,
		`{"success":"true","transaction":"0x1"}`, `{"success":true,"success":false,"transaction":"0x1"}`,
		`nonce already used`, ``, `<html>`} {
		for _, status := range []int{200, 302, 400, 402, 429, 500} {
			f.Add(status, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		j := judge(reply{status: status, body: body, connected: true}, Submission{Network: sepolia})
		require.NotEqual(t, NotSent, j.outcome)
		if j.outcome != Settled {
			require.Error(t, j.err)
			return
		}
		var said struct {
			Success     bool   `json:"success"`
			Transaction string `json:"transaction"`
		}
		require.NoError(t, x402.DecodeStrict(body, maxReply, &said))
		require.True(t, said.Success && said.Transaction != "" && status < 300, "settled by %d %s", status,
			body)
	})
}

// Whatever a facilitator says it supports: no panic, and only kinds on networks we know, under
// their CAIP-2 names.
func FuzzSupported(f *testing.F) {
	f.Add([]byte(kinds(2, sepolia, "")))
	f.Add([]byte(kinds(1, "solana-devnet", "payer")))
	f.Add([]byte(`{"kinds":[{"x402Version":2,"network":"bitcoin"},{}],"signers":{"solana:*":["a"]}}`))
	f.Add([]byte(`{"kinds":[{"extra":{"feePayer":7}}],"signers":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, _, err := readSupported(Facilitator{Name: "f"}, reply{status: http.StatusOK, body: body})
		if err != nil {
			require.Empty(t, list)
			return
		}
		require.True(t, json.Valid(body))
		require.LessOrEqual(t, len(list), maxKinds)
		for _, k := range list {
			network, known := x402.Network(k.Network)
			require.True(t, known && network == k.Network)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
