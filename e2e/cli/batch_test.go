//go:build unix

package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/sandbox"
)

// A deposit whose seller never heard that it was settled: the same call shows the voucher alone, and is
// served for one price.
func TestADepositThatItsSellerMissed(t *testing.T) {
	t.Parallel()
	v, err := schemes.Start(sandbox.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	home := filepath.Join(t.TempDir(), "home")
	payer, _, err := testworld.MakeHome(home, v.Config(schemes.Rules{}), testPassphrase)
	require.NoError(t, err)
	v.Fund(payer, sandbox.USDC)
	env := []string{"X402_WALLET_HOME=" + home, passphraseFile(t)}
	price := schemes.Price("/batch")
	v.Inject("facilitator cuts after", 1)
	out, _ := runs(t, 5, env, "pay", v.SellerURL+"/batch")
	require.Contains(t, out, "OUTCOME_UNKNOWN")
	require.Len(t, v.Settlements(), 1)
	require.Zero(t, v.Channels()[0].Charged)

	out, _ = runs(t, 0, env, "pay", v.SellerURL+"/batch")
	require.Contains(t, out, `"status": "paid"`)
	_, served := v.Requests("/batch")
	require.Equal(t, 1, served)
	require.Len(t, v.Settlements(), 1)
	c := v.Channels()[0]
	require.Equal(t, []uint64{price, price}, []uint64{c.Charged, c.Claimable})
	runs(t, 0, env, "pay", v.SellerURL+"/batch?next")
	require.Equal(t, 2*price, v.Channels()[0].Claimable, "it goes on from there")
	runs(t, 0, env, "ledger", "check", "--seals")
}
