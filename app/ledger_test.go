package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/backup"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/config"
	"x402-wallet/internal/pgtest"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
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
	standby := first.Replica(t)
	a := at(t, t.TempDir(), filepath.Join(t.TempDir(), "wallet"))
	_, _, err := testworld.MakeHome(a.home, "[ledger]\nurl = 'postgres://postgres@/postgres?host="+
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

// A ledger moves into PostgreSQL and back, with its payments. The one that it was copied from is frozen; a
// copy replaces no ledger.
func TestCopyLedger(t *testing.T) {
	ctx := t.Context()
	url := pgtest.Start(t).Database(t)
	a := at(t, t.TempDir(), filepath.Join(t.TempDir(), "wallet"))
	_, _, err := testworld.MakeHome(a.home, "[policy]\n", testworld.Passphrase)
	require.NoError(t, err)
	store, err := a.OpenLedger(ctx)
	require.NoError(t, err)
	p, err := historytest.Reserve(ctx, store, history.Hold{Payment: history.Payment{Network: base,
		Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", Amount: money.NewAmount(1), Price: 1,
		PayTo: shop[0].Address, Host: "api.example", URL: "https://api.example/"},
		Funds: x402.Funds{Free: money.NewAmount(10)}})
	require.NoError(t, err)
	_, err = a.CopyLedger(ctx, url)
	require.ErrorContains(t, err, "1 payments are unfinished")
	require.NoError(t, store.Release(ctx, p.ID, "a test"))
	require.NoError(t, store.Close())

	_, err = a.CopyLedger(ctx, "home")
	require.ErrorContains(t, err, "there is another ledger")
	made, err := a.CopyLedger(ctx, url)
	require.NoError(t, err)
	require.EqualValues(t, 1, made.Payments)
	_, err = a.CopyLedger(ctx, url)
	require.ErrorContains(t, err, "the database has a ledger")

	frozen := func(n int) {
		store, err := a.OpenLedger(ctx)
		require.NoError(t, err)
		defer store.Close()
		list, err := store.Freezes(ctx)
		require.NoError(t, err)
		require.Len(t, list, n)
		_, err = backup.ToFile(ctx, store, filepath.Join(t.TempDir(), "backup"))
		require.Equal(t, store.Shared(), err != nil, "%v", err)
	}
	frozen(1)
	rules := filepath.Join(a.home, config.FileName)
	require.NoError(t, os.WriteFile(rules, []byte("[ledger]\nurl = '"+url+"'\n"), 0o600))
	frozen(0)
	require.NoError(t, os.Remove(filepath.Join(a.home, history.FileName)))
	made, err = a.CopyLedger(ctx, "home")
	require.NoError(t, err)
	require.EqualValues(t, 1, made.Payments)
	frozen(1)
	require.NoError(t, os.WriteFile(rules, nil, 0o600))
	frozen(0)
}
