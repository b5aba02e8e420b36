package cli

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/report"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/tools"
)

// What the owner sent to the chain stands in the audit chain, which holds together with it.
func TestDelegationsAreInTheAuditChain(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	store := must.Get(ledgers.Open(t.Context(), home, history.Options{}))(t)
	var notes bytes.Buffer
	u := &ui{err: &notes}
	w := &tools.Wallet{Store: store}
	for _, out := range []changeOut{
		{Network: "solana:x", TokenAccount: "Acc", Owner: "Own", Delegate: "Agent", Amount: "25",
			Signature: "sig"},
		{Network: "solana:x", TokenAccount: "Acc", Owner: "Own", Signature: "sig2"},
		{Network: "eip155:1", TokenAccount: "0xown", Owner: "0xown", Delegate: "0xagent", Amount: "7",
			Hash: "0xh"},
		{Network: "eip155:1", TokenAccount: "0xown", Owner: "0xown", Hash: "0xh2"},
	} {
		u.noteChange(t.Context(), w, out, "USDC")
	}
	var events []string
	var last report.OwnersChange
	for _, e := range must.Get(report.Events(t.Context(), store, ""))(t) {
		if e.Event == "delegated" || e.Event == "revoked" {
			require.NoError(t, json.Unmarshal(e.Detail, &last))
			events = append(events, e.Event+" "+last.Account+" "+last.Transaction)
		}
		last = report.OwnersChange{}
	}
	require.Equal(t, []string{"delegated Acc sig", "revoked Acc sig2", "delegated 0xown 0xh",
		"revoked 0xown 0xh2"}, events)
	var shown []string
	for _, c := range must.Get(report.Changes(t.Context(), store, "solana:x", "Acc", "USDC"))(t) {
		require.WithinDuration(t, time.Now(), c.At, time.Minute)
		shown = append(shown, c.Delegate+" "+c.Amount+" "+c.Transaction)
	}
	require.Equal(t, []string{"Agent 25 sig", "  sig2"}, shown)
	require.Empty(t, must.Get(report.Changes(t.Context(), store, "solana:x", "Acc", "EURC"))(t))
	must.Get(verify.Ledger(t.Context(), store, history.Head{}))(t)
	require.Empty(t, notes.String())
	require.NoError(t, store.Close())
	u.noteChange(t.Context(), w, changeOut{Network: "solana:x", Delegate: "Agent"}, "USDC")
	require.Contains(t, notes.String(), "the audit chain does not have it")
}
