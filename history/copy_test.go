package history

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/sqldb"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
)

// A ledger goes into PostgreSQL and back with its payments, and each one that was copied is frozen. If the
// copy of what belongs to it fails, there is no copy, and it goes on.
func TestCopy(t *testing.T) {
	s, _, home := emptyStore(t)
	paid := pay(t, s, testHold(1), Settled)
	server := sqldb.Postgres{URL: pgtest.Shared(t).Database(t)}
	back := t.TempDir()
	nothing := func(context.Context) error { return nil }
	failure := errors.New("no room")
	failing := func(context.Context) error { return failure }

	_, err := s.CopyToPostgres(t.Context(), server, Verification.Tx, failing)
	require.ErrorIs(t, err, failure)
	_, err = s.CopyToFile(t.Context(), back, Verification.Tx, failing)
	require.ErrorIs(t, err, failure)
	left, err := os.ReadDir(back)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = s.CopyToFile(t.Context(), home, Verification.Tx, nothing)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, s.NotFrozen(t.Context(), "", ""))

	made, err := s.CopyToPostgres(t.Context(), server, Verification.Tx, nothing)
	require.NoError(t, err)
	require.EqualValues(t, 1, made.Payments)
	require.True(t, x402.HasCode(s.NotFrozen(t.Context(), "", ""), x402.WalletFrozen))
	copied, err := OpenPostgres(t.Context(), t.TempDir(), server, Options{})
	require.NoError(t, err)
	defer copied.Close()
	again, err := copied.CopyToFile(t.Context(), back, Verification.Tx, nothing)
	require.NoError(t, err)
	require.Positive(t, again.Bytes)
	require.Equal(t, []int64{made.Payments, made.Events}, []int64{again.Payments, again.Events})
	require.True(t, x402.HasCode(copied.NotFrozen(t.Context(), "", ""), x402.WalletFrozen))

	file, err := Open(t.Context(), back, Options{})
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.NotFrozen(t.Context(), "", ""))
	is, err := file.Payment(t.Context(), paid.ID)
	require.NoError(t, err)
	require.Equal(t, paid.ID, is.ID)
	_, err = file.Verify(t.Context(), Head{})
	require.NoError(t, err)
}
