package pay

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Where the owner named an account that delegates, what anybody delegates on another network limits
// nothing: not less, and not more.
func TestDelegation_OfAnotherNetwork(t *testing.T) {
	const named = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	assets := x402.NewRegistry(nil)
	delegated := map[string]uint64{named: 5_000_000, x402.SolanaDevnet: 1_000_000_000_000}
	d := Delegation{Networks: []string{x402.SolanaDevnet, named}, Assets: assets,
		Log:     slog.New(slog.DiscardHandler),
		IsNamed: func(network string) bool { return network == named },
		Funds: func(_ context.Context, network string, _ x402.AssetInfo) (x402.Funds, error) {
			return x402.Funds{Delegated: new(money.NewAmount(delegated[network]))}, nil
		}}
	dollars, _ := assets.Named(x402.SolanaDevnet, "")
	require.EqualValues(t, 5_000_000, *must.Get(d.Limit(t.Context(), x402.SolanaDevnet, dollars.Address))(t))
	require.EqualValues(t, 5_000_000, *must.Get(d.Limit(t.Context(), "", ""))(t))
	d.IsNamed = func(string) bool { return false }
	require.EqualValues(t, 1_000_000_000_000,
		*must.Get(d.Limit(t.Context(), x402.SolanaDevnet, dollars.Address))(t))
}
