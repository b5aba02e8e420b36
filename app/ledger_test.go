package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/x402"
)

// Rules that name a ledger elsewhere are not paid by with the one at home: that would be a second budget.
func TestALedgerElsewhereIsRefused(t *testing.T) {
	a := at(t, t.TempDir(), t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(a.home, config.FileName),
		[]byte("[ledger]\nurl = 'postgres://wallet@127.0.0.1:1/x402'\n"), 0o600))
	_, err := a.OpenLedger(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, "the ledger's server does not answer")
}
