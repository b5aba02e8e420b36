package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
)

// The wallet pays the routes that the reference's own end-to-end servers have on EVM and Solana, sold by each
// of its adapters that npm has: all of them.
func TestCatalogue(t *testing.T) {
	requirePrepared(t, "lab/adapters")
	lab := testlab.Start(t)
	batch := startBatch(t, lab)
	options := map[string]any{
		"facilitators": []string{lab.Facilitators[0], batch.Facilitator},
		"payTo":        map[string]string{"evm": lab.EVM.PayTo, "svm": lab.SVM.PayTo}}
	var shops struct {
		Express, Hono, Next string
		Paths               []string
	}
	testlab.StartParty(t, "adapters/catalogue.mjs", options, &shops)
	adapters := map[string]string{"express": shops.Express, "hono": shops.Hono, "next": shops.Next}
	w, home := funded(t, lab, testlab.ConfigOptions{ApprovalGas: "0.01",
		Loopback: slices.Collect(maps.Values(adapters))})
	require.Len(t, shops.Paths, 12)
	paid := 0
	for _, adapter := range slices.Sorted(maps.Keys(adapters)) {
		for _, path := range shops.Paths {
			byBatch, isSolana := strings.HasPrefix(path, "/batch-settlement/"), strings.HasSuffix(path,
				"/svm")
			own := uint64(0) // the owner's approval of Permit2
			if strings.HasSuffix(path, "/permit2") {
				own = 2 * price
			}
			if byBatch {
				own *= 5 // what the seller has deposited at least
			}
			lab.EVMApprovePermit2(home.EVM, own)
			before := lab.EVMBalance(home.EVM) + lab.SVMBalance(home.Solana, "")
			p := buyAnew(t, w, adapters[adapter]+path)
			require.Equal(t, "paid", p.Status, "%s %s: %+v", adapter, path, p)
			if byBatch { // so that the next call deposits, too
				var back struct{ Refunds []struct{ Refunded string } }
				channelCommand(t, home, 0, &back, "refund", testlab.HostPort(adapters[adapter]))
				require.Len(t, back.Refunds, 1)
			}
			after := lab.EVMBalance(home.EVM) + lab.SVMBalance(home.Solana, "")
			require.JSONEq(t, `{"ok":true,"path":"`+path+`"}`, p.Content)
			require.Equal(t, isSolana, p.Network == lab.SVM.Network)
			require.Equal(t, before-price, after, "%s %s", adapter, path)
			paid++
		}
	}
	require.Equal(t, 36, paid)
}
