package wire

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// Amount and payee are enough; what is left out comes from the buyer's own settings, or it is refused.
func TestComplete(t *testing.T) {
	const mainnetUSDC = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"
	devnet, mainnet, both := []string{x402.SolanaDevnet, "eip155:8453"}, []string{x402.SolanaMainnet},
		[]string{x402.SolanaMainnet, x402.SolanaDevnet}
	for name, test := range map[string]struct {
		headers        []string
		mine           []string
		network, asset string
		why            string
	}{
		"amount and recipient": {[]string{"X-Payment-Recipient", payeeSVM}, devnet, x402.SolanaDevnet,
			devnetUSDC, ""},
		"amount and PayTo": {[]string{"X-Payment-PayTo", payeeSVM}, mainnet, x402.SolanaMainnet, mainnetUSDC,
			""},
		"with a network": {[]string{"X-Payment-Recipient", payeeSVM, "X-Payment-Network", "solana"}, devnet,
			x402.SolanaMainnet, mainnetUSDC, ""},
		"with one of EVM": {[]string{"X-Payment-Recipient", payeeEVM, "X-Payment-Network", "base"}, devnet,
			"eip155:8453", baseUSDC, ""},
		"with a token": {[]string{"X-Payment-Recipient", payeeSVM, "X-Payment-Token",
			"4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7"}, devnet, x402.SolanaDevnet,
			"4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7", ""},
		"two networks of Solana": {[]string{"X-Payment-Recipient", payeeSVM}, both, "", "",
			"several of Solana: " + x402.SolanaMainnet + ", " + x402.SolanaDevnet},
		"no network of Solana": {[]string{"X-Payment-Recipient", payeeSVM}, []string{"eip155:8453"}, "", "",
			"none of Solana"},
		"no network at all": {[]string{"X-Payment-Recipient", payeeSVM}, nil, "", "", "none of Solana"},
		"a payee of EVM":    {[]string{"X-Payment-Recipient", payeeEVM}, devnet, "", "", "good on many"},
		"an unknown network": {[]string{"X-Payment-Recipient", payeeSVM, "X-Payment-Network", "sol-main"},
			devnet, "", "", "no USDC is known on"},
		"a network without USDC": {[]string{"X-Payment-Recipient", payeeEVM, "X-Payment-Network",
			"eip155:14"}, devnet, "", "", "no USDC is known on"},
		"no payee": {nil, devnet, "", "", "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			header := headers(append(slices.Clone(test.headers), "X-Payment-Amount", "500")...)
			c := must.Get(ReadChallenge(402, header, nil))(t)
			require.Empty(t, c.Accepts)
			c.Complete(test.mine, x402.NewRegistry(nil))
			if test.why != "" {
				require.Empty(t, c.Accepts)
				require.ErrorContains(t, c.Unreadable[0].Why, test.why)
				return
			}
			require.Empty(t, c.Unreadable)
			r := c.Accepts[0]
			require.Equal(t, []string{test.network, test.asset, "500", "exact",
				string(x402.DialectPlainProof)}, []string{r.Network, r.Asset, r.Amount.String(), r.Scheme,
				string(r.Dialect)})
			c.Complete(both, x402.NewRegistry(nil))
			require.Equal(t, []x402.Requirement{r}, c.Accepts, "once complete it stays")
		})
	}
	whole := must.Get(ReadChallenge(402, plainProof("1"), nil))(t)
	was := whole.Accepts[0]
	whole.Complete(mainnet, x402.NewRegistry(nil))
	require.Equal(t, []x402.Requirement{was}, whole.Accepts, "what a seller names stands")
}
