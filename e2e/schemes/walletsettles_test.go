package schemes

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/sandbox"
)

// The wallet settles and shows the transaction, once.
func TestWalletSettles(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newEVMPayer(t, s, sandbox.USDC)
	for _, form := range []string{"/settle-first", "/settle-plain", "/ignores-payment"} {
		c := testworld.Challenge(t, s.SellerURL+form+"/weather")
		r := c.Accepts[0]
		require.Equal(t, form != "/ignores-payment", r.Dialect.WalletSettles())
		require.Equal(t, form == "/ignores-payment", r.Dialect.MayWantProof())
		if r.Extra == nil {
			r.Extra = map[string]json.RawMessage{"name": json.RawMessage(`"USDC"`),
				"version": json.RawMessage(`"2"`)}
			c.Accepts[0] = r
		}
		payload := payer.sign(t, s, r).Payload
		require.Equal(t, 402, pay(t, s, form+"/weather", c, payload).Status)
		status, settlement := testworld.Settle(t, s.FacilitatorURL, c, payload)
		require.Equal(t, 200, status)
		require.True(t, settlement.Success, settlement.ErrorReason)
		url := s.SellerURL + form
		for _, row := range []struct {
			path string
			want int
		}{{"/report", 402}, {"/weather", 200}, {"/weather", 402}, {"/free", 200}, {"/nowhere", 404}} {
			answer := testworld.Get(t, url+row.path, "X-Payment-Signature", settlement.Transaction)
			require.Equal(t, row.want, answer.Status, form+row.path)
		}
	}
}
