package seal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
)

// A failover has lost what a wallet wrote: who knows of it by its checkpoint stops the whole fleet, and says
// why.
func TestAWalletThatIsAheadFreezesTheFleet(t *testing.T) {
	f := history.Fleet{URL: pgtest.Shared(t).Database(t), Writer: "home_a"}
	_, err := history.CreateFleet(t.Context(), f)
	require.NoError(t, err)
	guard := func(writer string) *Guard {
		f.Writer = writer
		s, err := history.OpenFleet(f, history.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		return &Guard{Home: t.TempDir(), Store: s, Key: key("ours"), Fleet: &Fleet{Now: time.Now}}
	}
	a, b := guard("home_a"), guard("home_b")
	require.NoError(t, a.Checkpoint(t.Context()), "nothing was written yet")
	for version := range int64(2) {
		require.NoError(t, a.Store.ApplyRules(t.Context(), history.SealedRules{Version: version + 1,
			Config: []byte("c"), Seal: []byte{byte(version)}}, history.BudgetsOf(budget.Rules{Day: 1})))
	}
	require.NoError(t, a.Checkpoint(t.Context()))
	require.NoError(t, b.Checkpoint(t.Context()))
	require.NoError(t, a.Checkpoint(t.Context()), "it is as it was")
	require.NoError(t, b.Store.NotFrozen(t.Context(), "eip155:8453", "0xagent"))

	pgtest.SQL(t, f.URL, `DELETE FROM x402.audit WHERE writer = 'home_a' AND seq = 2`,
		`UPDATE x402.writers SET head = 1, hash = (SELECT hash FROM x402.audit WHERE writer = 'home_a') WHERE
			name = 'home_a'`)
	sealed, err := a.Store.Rules(t.Context())
	require.NoError(t, err)
	for range 2 {
		_, err = a.checkLedger(t.Context(), sealed) // as before each signature
		require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
	}
	err = b.Store.NotFrozen(t.Context(), "eip155:8453", "0xagent")
	require.True(t, x402.HasCode(err, x402.WalletFrozen), "%v", err)
	frozen, err := b.Store.Freezes(t.Context())
	require.NoError(t, err)
	require.Len(t, frozen, 1)
	require.Equal(t, "witness", frozen[0].By)
	require.Contains(t, frozen[0].Why, "event 2")
}
