package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config"
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
