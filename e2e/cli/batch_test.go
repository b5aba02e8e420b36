//go:build unix

package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

// A deposit whose seller never heard that it was settled: the same call shows the voucher alone, and is
// served for one price.
func TestADepositThatItsSellerMissed(t *testing.T) {
	t.Parallel()
	v := attacked(t, 0, sandbox.Rules{})
	price := sandbox.Price("/batch")
	v.Inject("facilitator cuts after", 1)
	out, _ := runs(t, 5, v.env, "pay", v.SellerURL+"/batch")
	require.Contains(t, out, "OUTCOME_UNKNOWN")
	require.Len(t, v.Settlements(), 1)
	require.Zero(t, v.Channels()[0].Charged)

	out, _ = runs(t, 0, v.env, "pay", v.SellerURL+"/batch")
	require.Contains(t, out, `"status": "paid"`)
	_, served := v.Requests("/batch")
	require.Equal(t, 1, served)
	require.Len(t, v.Settlements(), 1)
	c := v.Channels()[0]
	require.Equal(t, []uint64{price, price}, []uint64{c.Charged, c.Claimable})
	runs(t, 0, v.env, "pay", v.SellerURL+"/batch?next")
	require.Equal(t, 2*price, v.Channels()[0].Claimable, "it goes on from there")
	runs(t, 0, v.env, "ledger", "check", "--seals")
}
