package tools

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// The agent prepares what the owner signs, and stops paying from the account at once; only the
// owner lifts that.
func TestRevokeDelegation(t *testing.T) {
	w := newWorld(t, rules{})
	account := w.Delegate(w.address(sandbox.Solana), sandbox.USDC)
	c := w.serve(t)
	out := c.ok("x402_revoke_delegation", map[string]any{})
	require.Equal(t, []any{sandbox.Solana, account, w.Owner, false},
		[]any{out["network"], out["tokenAccount"], out["owner"], out["frozen"]})
	require.Equal(t, "x402-wallet delegation revoke --owner-keypair FILE --network "+sandbox.Solana+
		" --token-account "+account, out["command"])
	raw := must.Get(base64.StdEncoding.DecodeString(out["transaction"].(string)))(t)
	require.Equal(t, append([]byte{1}, make([]byte, 64)...), raw[:65], "not signed")
	require.Equal(t, "paid", c.ok("x402_pay", map[string]any{"url": w.SellerURL + "/solana"})["status"],
		"asking alone ends nothing")

	require.Equal(t, true, c.ok("x402_revoke_delegation", map[string]any{"freeze": true})["frozen"])
	f := c.refused("x402_pay", map[string]any{"url": w.SellerURL + "/solana"})
	require.Equal(t, x402.WalletFrozen, f.Error)
	require.NotContains(t, f.Hint, "unfreeze")
	require.Equal(t, "nothing is paid from it until the person has looked at it", f.Hint)
	require.Equal(t, "Payments from the account "+account+" are stopped, because its delegation is to be "+
		"revoked: please look at x402-wallet history, and unfreeze if it is right.", f.Next.Say)
	w.Fund(w.address(sandbox.EVM), sandbox.USDC)
	require.Equal(t, "paid", c.ok("x402_pay", map[string]any{"url": w.SellerURL + "/either"})["status"],
		"from another account")
	must.Get(w.wallet.Store.Unfreeze(t.Context(), nil))(t)
	require.Equal(t, "paid", c.ok("x402_pay", map[string]any{"url": w.SellerURL + "/solana"})["status"])

	// An account is found on whatever network it is, not only on the preferred one.
	w.wallet.Networks = []string{"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", sandbox.Solana}
	for _, arguments := range []map[string]any{{}, {"tokenAccount": account}} {
		require.Equal(t, sandbox.Solana, c.ok("x402_revoke_delegation", arguments)["network"])
		require.Equal(t, sandbox.Solana, c.ok("x402_check_delegation", arguments)["network"])
	}
	w.wallet.Networks = []string{sandbox.Solana}

	// The node is down: the account is frozen all the same.
	w.Inject("solana node down", 100)
	require.Equal(t, x402.RPCError, c.refused("x402_revoke_delegation",
		map[string]any{"tokenAccount": account, "freeze": true}).Error)
	list := must.Get(w.wallet.Store.Freezes(t.Context()))(t)
	require.Len(t, list, 1)
	require.Equal(t, account, list[0].Account)
	w.Heal()
	for _, nonsense := range []string{"x", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "l" + account[1:],
		account[:32]} {
		t.Run(nonsense, func(t *testing.T) {
			require.Equal(t, x402.InvalidArgument, c.refused("x402_revoke_delegation",
				map[string]any{"tokenAccount": nonsense, "freeze": true}).Error)
			list := must.Get(w.wallet.Store.Freezes(t.Context()))(t)
			require.Len(t, list, 1, "it froze what is no account")
		})
	}
}
