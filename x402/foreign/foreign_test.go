package foreign

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// What other wallets speak is named, and only that.
func TestForeign(t *testing.T) {
	for words, r := range map[string]x402.Requirement{
		"Circle Gateway": {Scheme: x402.Exact, NetworkName: "base",
			Extra: map[string]json.RawMessage{"name": json.RawMessage(`" gatewaywalletBATCHED"`)}},
		"Nevermined":     {Scheme: "nvm:card-delegation", NetworkName: "stripe"},
		"upto on Solana": {Scheme: "upto", Network: x402.SolanaMainnet},
		"version 1":      {Scheme: "upto", Version: 1, Network: "eip155:8453"},
		"deferred":       {Scheme: "deferred", NetworkName: "cloudflare:402"},
		"ERC-7710": {Scheme: x402.Exact,
			Extra: map[string]json.RawMessage{"assetTransferMethod": json.RawMessage(`"erc7710"`)}},
		"extra.voucherManager": {Scheme: x402.BatchSettlement, NetworkName: "eip155:8453",
			Extra: map[string]json.RawMessage{"voucherManager": json.RawMessage(`"facilitator"`)}},
		"extra.payerAuthorizer": {Scheme: x402.BatchSettlement, NetworkName: "solana",
			Extra: map[string]json.RawMessage{"payerAuthorizer": json.RawMessage(`{}`)}},
		"extra.voucherSigner": {Scheme: x402.BatchSettlement, NetworkName: "base",
			Extra: map[string]json.RawMessage{"voucherSigner": json.RawMessage(`"0x1"`)}},
		"Stellar": {Scheme: x402.Exact, NetworkName: "stellar-testnet"},
		"XRP":     {Scheme: x402.Exact, NetworkName: "xrpl:0"},
	} {
		require.Contains(t, Of(r), words)
	}
	require.True(t, IsGateway(x402.Requirement{Extra: map[string]json.RawMessage{"name": json.RawMessage(
		`"GatewayWalletBatched"`)}}))
	for _, name := range []string{"base", "eip155:8453", x402.SolanaMainnet, "solana-devnet", "nvm"} {
		require.Empty(t, Of(x402.Requirement{Scheme: x402.Exact, NetworkName: name}), name)
	}
}
