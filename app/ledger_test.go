package app

import (
	"fmt"
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
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func requireCode(t *testing.T, err error, want x402.Code) {
	t.Helper()
	require.True(t, x402.HasCode(err, want), "%v", err)
}

// While the ledger that the rules name is away nothing is paid, and no other ledger is made or taken: that
// would be a second budget.
func TestALedgerThatIsAway(t *testing.T) {
	a := at(t, t.TempDir(), t.TempDir())
	testworld.NewStore(t, a.home)
	require.NoError(t, os.WriteFile(filepath.Join(a.home, config.FileName),
		[]byte("[ledger]\nurl = 'postgres://wallet@/x402?host="+t.TempDir()+"'\n"), 0o600))
	requireCode(t, must.Err(a.OpenLedger(t.Context())), x402.LedgerUnavailable)
}

// A standby that is promoted without the newest events is noticed by a replica that saw them. Nothing is paid
// any more, also by other replicas, until the owner accepts the ledger.
func TestAFailoverThatLosesEvents(t *testing.T) {
	ctx, first := t.Context(), pgtest.Start(t)
	standby := first.Replica(t)
	a := at(t, t.TempDir(), filepath.Join(t.TempDir(), "wallet"))
	rules := fmt.Sprintf("[ledger]\nurl = 'postgres://postgres@/postgres?host=%s,%s'\n", first.Dir(),
		standby.Dir())
	_, _, err := testworld.MakeHome(a.home, rules, testworld.Passphrase)
	require.NoError(t, err)
	h := must.Get(a.open(ctx))(t)
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
		list := must.Get(h.store.Freezes(ctx))(t)
		for i, f := range list {
			require.Equal(t, by[i], f.By)
		}
		require.Len(t, list, len(by))
	}
	isFrozen("replica")
	requireCode(t, guard.VerifySeals(ctx), x402.LedgerCorrupt)
	must.Get(h.store.Unfreeze(ctx, nil))(t)
	require.NoError(t, w.look(ctx, 1))
	isFrozen("replica")

	require.NoError(t, guard.Seal(ctx, true))
	must.Get(guard.Unfreeze(ctx))(t)
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
	store := must.Get(a.OpenLedger(ctx))(t)
	p := must.Get(historytest.Reserve(ctx, store, history.Hold{Payment: history.Payment{Network: base,
		Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", Amount: money.NewAmount(1), Price: 1,
		PayTo: shop[0].Address, Host: "api.example", URL: "https://api.example/"},
		Funds: x402.Funds{Free: money.NewAmount(10)}}))(t)
	require.ErrorContains(t, must.Err(a.CopyLedger(ctx, url)), "1 payments are unfinished")
	require.NoError(t, store.Release(ctx, p.ID, "a test"))
	require.NoError(t, store.Close())

	require.ErrorContains(t, must.Err(a.CopyLedger(ctx, "home")), "there is another ledger")
	made := must.Get(a.CopyLedger(ctx, url))(t)
	require.EqualValues(t, 1, made.Payments)
	require.ErrorContains(t, must.Err(a.CopyLedger(ctx, url)), "the database has a ledger")

	frozen := func(n int) {
		store := must.Get(a.OpenLedger(ctx))(t)
		defer store.Close()
		require.Len(t, must.Get(store.Freezes(ctx))(t), n)
		_, err := backup.ToFile(ctx, store, filepath.Join(t.TempDir(), "backup"))
		require.Equal(t, store.Shared(), err != nil, "%v", err)
	}
	frozen(1)
	rules := filepath.Join(a.home, config.FileName)
	require.NoError(t, os.WriteFile(rules, []byte("[ledger]\nurl = '"+url+"'\n"), 0o600))
	frozen(0)
	require.NoError(t, os.Remove(filepath.Join(a.home, history.FileName)))
	made = must.Get(a.CopyLedger(ctx, "home"))(t)
	require.EqualValues(t, 1, made.Payments)
	frozen(1)
	require.NoError(t, os.WriteFile(rules, nil, 0o600))
	frozen(0)
}
