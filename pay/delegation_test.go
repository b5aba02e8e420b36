package pay

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

const solanaMain = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"

// F6: the owner named token_account on the main network; a first payment on Devnet, where anybody may delegate
// any sum to the agent for nothing, sets the cap of the whole session.
func TestR2_DelegationOfAnotherNetwork(t *testing.T) {
	assets := x402.NewRegistry(nil)
	d := Delegation{Networks: []string{solanaMain, x402.SolanaDevnet}, Assets: assets, Log: slog.New(slog.DiscardHandler),
		Names: func(n string) bool { return n == solanaMain },
		Funds: func(_ context.Context, n string, a x402.AssetInfo) (x402.Funds, error) {
			sum := money.NewAmount(5_000_000)
			if n == x402.SolanaDevnet {
				sum = money.NewAmount(1_000_000_000_000)
			}
			return x402.Funds{Delegated: &sum}, nil
		}}
	dev, known := assets.Named(x402.SolanaDevnet, "")
	require.True(t, known)
	limit, err := d.Limit(t.Context(), x402.SolanaDevnet, dev.Address)
	require.NoError(t, err)
	require.NotNil(t, limit)
	require.LessOrEqual(t, int64(*limit), int64(5_000_000))
}
