package backup

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
)

// A ledger goes into PostgreSQL and back with its payments, and each one that was copied is frozen. If the
// copy of what belongs to it fails, there is no copy, and it goes on.
func TestCopy(t *testing.T) {
	s, _, home := historytest.SQLite(t, history.Options{})
	paid := historytest.Pay(t, s, historytest.Hold(1), history.Settled)
	server := postgres.Server{URL: pgtest.Shared(t).Database(t)}
	back := t.TempDir()
	nothing := func(context.Context) error { return nil }
	failure := errors.New("no room")
	failing := func(context.Context) error { return failure }

	require.ErrorIs(t, must.Err(ToPostgres(t.Context(), s, server, failing)), failure)
	require.ErrorIs(t, must.Err(ToHome(t.Context(), s, back, failing)), failure)
	require.Empty(t, must.Get(os.ReadDir(back))(t))
	require.ErrorIs(t, must.Err(ToHome(t.Context(), s, home, nothing)), os.ErrExist)
	require.NoError(t, s.NotFrozen(t.Context(), "", ""))

	made := must.Get(ToPostgres(t.Context(), s, server, nothing))(t)
	require.EqualValues(t, 1, made.Payments)
	require.True(t, x402.HasCode(s.NotFrozen(t.Context(), "", ""), x402.WalletFrozen))
	copied := must.Get(ledgers.OpenPostgres(t.Context(), t.TempDir(), server, historytest.Options()))(t)
	defer copied.Close()
	again := must.Get(ToHome(t.Context(), copied, back, nothing))(t)
	require.Positive(t, again.Bytes)
	require.Equal(t, []int64{made.Payments, made.Events}, []int64{again.Payments, again.Events})
	require.True(t, x402.HasCode(copied.NotFrozen(t.Context(), "", ""), x402.WalletFrozen))

	file := must.Get(ledgers.Open(t.Context(), back, historytest.Options()))(t)
	defer file.Close()
	require.NoError(t, file.NotFrozen(t.Context(), "", ""))
	require.Equal(t, paid.ID, must.Get(file.Payment(t.Context(), paid.ID))(t).ID)
	must.Get(verify.Ledger(t.Context(), file, history.Head{}))(t)
}
