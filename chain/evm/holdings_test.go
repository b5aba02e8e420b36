package evm

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Each token is asked for by itself, and the coin; one that the node does not tell of is not left out.
func TestHoldings(t *testing.T) {
	other := usdc
	other.Symbol = "OTHER"
	ask := func(f *fakeNode) ([]x402.AssetInfo, money.Amount, error) {
		return f.exact(t, testSigner(t)).Holdings(t.Context(), sepolia, []x402.AssetInfo{usdc, other})
	}
	f := newFakeNode(t)
	f.Balance, f.Sends.Coins = money.NewAmount(5), 7
	some, coin, err := ask(f)
	require.NoError(t, err)
	require.Equal(t, []x402.AssetInfo{usdc, other}, some)
	require.Equal(t, money.NewAmount(7), coin)
	require.Equal(t, []int{2, 1}, []int{f.Asked["eth_call"], f.Asked["eth_getBalance"]})

	f = newFakeNode(t)
	some, coin, err = ask(f)
	require.NoError(t, err)
	require.Empty(t, some)
	require.True(t, coin.IsZero())

	f = newFakeNode(t)
	fails := func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusInternalServerError); return true }
	f.Override["eth_call"] = fails
	some, _, err = ask(f)
	require.NoError(t, err)
	require.Len(t, some, 2, "its own row says why")
	f.Override["eth_getBalance"] = fails
	_, _, err = ask(f)
	require.True(t, x402.HasCode(err, x402.RPCError), "%v", err)
	_, _, err = New(Options{RPC: map[string]string{sepolia: f.URL}}).Holdings(t.Context(), sepolia, nil)
	require.Error(t, err)
}
