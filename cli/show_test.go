package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/tools"
)

// What each facilitator answered stands under the event that it led to.
func TestShowSaysWhatFacilitatorsAnswered(t *testing.T) {
	var out tools.HistoryOut
	require.NoError(t, json.Unmarshal([]byte(`{"transactions":[{"paymentId":"pay_1"}],"amountPaid":"1",
		"evidence":{"states":[{"at":"2026-01-02T03:04:05Z","event":"reserved","detail":{}},
		{"at":"2026-01-02T03:04:05Z","event":"unknown","detail":{"facilitator":"cdp","facilitatorStatus":503,
			"tries":["cdp: unknown: status 503: \"oops\"","payai: unknown: no answer in time"]}}]}}`), &out))
	var text, notes bytes.Buffer
	(&ui{out: &output{w: &text}, err: &notes}).payment(out)
	require.Regexp(t, `unknown\n.*facilitator cdp: unknown: status 503: "oops"\n`+
		`.*facilitator payai: unknown: no answer in time\n`, text.String())
}
