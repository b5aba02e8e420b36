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

	_, err := ToPostgres(t.Context(), s, server, failing)
	require.ErrorIs(t, err, failure)
	_, err = ToHome(t.Context(), s, back, failing)
	require.ErrorIs(t, err, failure)
	left, err := os.ReadDir(back)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = ToHome(t.Context(), s, home, nothing)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, s.NotFrozen(t.Context(), "", ""))

	made, err := ToPostgres(t.Context(), s, server, nothing)
	require.NoError(t, err)
	require.EqualValues(t, 1, made.Payments)
	require.True(t, x402.HasCode(s.NotFrozen(t.Context(), "", ""), x402.WalletFrozen))
	copied, err := ledgers.OpenPostgres(t.Context(), t.TempDir(), server, historytest.Options())
	require.NoError(t, err)
	defer copied.Close()
	again, err := ToHome(t.Context(), copied, back, nothing)
	require.NoError(t, err)
	require.Positive(t, again.Bytes)
	require.Equal(t, []int64{made.Payments, made.Events}, []int64{again.Payments, again.Events})
	require.True(t, x402.HasCode(copied.NotFrozen(t.Context(), "", ""), x402.WalletFrozen))

	file, err := ledgers.Open(t.Context(), back, historytest.Options())
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.NotFrozen(t.Context(), "", ""))
	is, err := file.Payment(t.Context(), paid.ID)
	require.NoError(t, err)
	require.Equal(t, paid.ID, is.ID)
	_, err = verify.Ledger(t.Context(), file, history.Head{})
	require.NoError(t, err)
}
