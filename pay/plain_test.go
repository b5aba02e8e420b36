package pay

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// A seller that asks in X-Payment-Amount and -Recipient alone is paid in USDC, on the network that is meant.
func TestAmountAndRecipientAreEnough(t *testing.T) {
	plain := func(names ...string) *seller.Answer {
		header := http.Header{}
		for i := 0; i < len(names); i += 2 {
			header.Set(names[i], names[i+1])
		}
		a := &seller.Answer{Status: 402, Header: header}
		a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, header, nil)
		return a
	}
	asks := func() *seller.Answer {
		return plain("X-Payment-Amount", "10000", "X-Payment-Recipient", testPayee, "X-Payment-Network",
			"base-sepolia")
	}
	b := newSettlingBench(t, "0xsettled")
	b.Transport = plainSeller{b.seller, asks}
	require.Equal(t, "0xsettled", b.mustBuy(t, testURL).TransactionSignature)

	const solana = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	const payee = "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4"
	b.Transport = plainSeller{b.seller, func() *seller.Answer {
		return plain("X-Payment-Amount", "10000", "X-Payment-PayTo", payee)
	}}
	b.Schemes[SchemeKey{Scheme: x402.Exact, Family: "solana"}] = b.chain
	b.Policy.Networks = []string{solana, x402.SolanaMainnet}
	refused := b.mustRefuse(t, x402.InvalidRequirement, testURL+"/2")
	require.Contains(t, refused.Message, "several of Solana")
	chosen := get(testURL + "/2")
	chosen.Network = solana
	estimate, err := b.Estimate(t.Context(), chosen)
	require.NoError(t, err)
	require.Equal(t, solana, estimate.Options[0].Network, "the call chooses one")
	b.Policy.Networks = []string{x402.SolanaMainnet}
	estimate = b.estimate(t, testURL+"/2")
	require.Equal(t, x402.SolanaMainnet, estimate.Options[0].Network, "the only one")
}

type plainSeller struct {
	*scriptedSeller
	ask func() *seller.Answer
}

func (s plainSeller) Ask(context.Context, seller.Request) (*seller.Answer, error) {
	return s.ask(), nil
}
