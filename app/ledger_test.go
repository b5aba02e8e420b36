package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/internal/pgtest"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// While the ledger that the rules name is away nothing is paid, and no other ledger is made or taken: that
// would be a second budget.
func TestALedgerThatIsAway(t *testing.T) {
	a := at(t, t.TempDir(), t.TempDir())
	testworld.NewStore(t, a.home)
	require.NoError(t, os.WriteFile(filepath.Join(a.home, config.FileName),
		[]byte("[ledger]\nurl = 'postgres://wallet@/x402?host="+t.TempDir()+"'\n"), 0o600))
	_, err := a.OpenLedger(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
}

// A standby that is promoted without the newest events is noticed by a replica that saw them. Nothing is paid
// any more, also by other replicas, until the owner accepts the ledger.
func TestAFailoverThatLosesEvents(t *testing.T) {
	ctx, first := t.Context(), pgtest.Start(t)
	_, database, _ := strings.Cut(strings.SplitN(first.Database(t), "?", 2)[0], "///")
	standby := first.Replica(t)
	a := at(t, t.TempDir(), filepath.Join(t.TempDir(), "wallet"))
	_, _, err := testworld.MakeHome(a.home, "[ledger]\nurl = 'postgres://postgres@/"+database+"?host="+
		first.Dir()+","+standby.Dir()+"'\n", testworld.Passphrase)
	require.NoError(t, err)
	h, err := a.open(ctx)
	require.NoError(t, err)
	defer h.Close()
	require.NoError(t, h.keys.Unlock(ctx, wallet.FromValue(testworld.Passphrase)))
	guard := a.Guard(h.store, h.rules, h.keys)
	w := witness{store: h.store}

	first.CaughtUp(t, standby)
	standby.StopReceiver(t, time.Hour)
	require.NoError(t, h.store.Freeze(ctx, history.Freeze{By: "owner", Why: "a test"}))
	require.NoError(t, guard.Checkpoint(ctx))
	require.NoError(t, w.look(ctx, 1))
	first.Kill(t)
	standby.Promote(t)

	require.Eventually(t, func() bool { return w.look(ctx, 1) == nil }, 20*time.Second, followEvery)
	isFrozen := func(by ...string) {
		list, err := h.store.Freezes(ctx)
		require.NoError(t, err)
		for i, f := range list {
			require.Equal(t, by[i], f.By)
		}
		require.Len(t, list, len(by))
	}
	isFrozen("replica")
	err = guard.VerifySeals(ctx)
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
	_, err = h.store.Unfreeze(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, w.look(ctx, 1))
	isFrozen("replica")

	require.NoError(t, guard.Seal(ctx, true))
	_, err = guard.Unfreeze(ctx)
	require.NoError(t, err)
	require.NoError(t, w.look(ctx, 2))
	require.NoError(t, guard.VerifySeals(ctx))
	isFrozen()
}
