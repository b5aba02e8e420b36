package remedy

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The lines for config.toml name the token and nothing that its seller says of it; what names no token has
// no lines.
func TestUnknownAsset(t *testing.T) {
	r := x402.Requirement{Network: "eip155:8453", Asset: "0x50c5725949A6F0c72E6C4a641F24049A917DB0Cb",
		Extra: map[string]json.RawMessage{"name": json.RawMessage(`"Free Dollars"`)}}
	e := UnknownAsset(r)
	require.Equal(t, x402.UntrustedAsset, e.Code)
	require.Equal(t, x402.Next{Do: x402.AskPerson, Command: SealCommand, Say: e.NextStep().Say}, e.NextStep())
	lines := e.Details["config"].(string)
	require.Contains(t, lines, `address = "0x50c5725949A6F0c72E6C4a641F24049A917DB0Cb"`)
	require.Contains(t, lines, "EIP-712")
	require.NotContains(t, fmt.Sprint(e.Message, e.Hint, e.Details, e.Next), "Free")
	r.Network, r.Asset = x402.SolanaMainnet, "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
	require.NotContains(t, UnknownAsset(r).Details["config"], "EIP-712")
	for _, asset := range []string{"USDC", "", "0x50c5725949A6F0c72E6C4a641F24049A917DB0C",
		"0x50c5725949A6F0c72E6C4a641F24049A917DB0Cb\"\nusd = \"1\""} {
		e := UnknownAsset(x402.Requirement{Network: "eip155:8453", Asset: asset})
		require.Equal(t, x402.InvalidRequirement, e.Code)
		require.Nil(t, e.Details["config"])
	}
}

func TestNetworkOff(t *testing.T) {
	e := NetworkOff("eip155:10")
	require.Equal(t, x402.InvalidRequirement, e.Code)
	require.Equal(t, x402.ByPerson, e.FixableBy())
	require.Contains(t, e.Message, "OP Mainnet (eip155:10)")
	next := e.NextStep()
	require.Equal(t, x402.AskPerson, next.Do)
	require.Equal(t, "x402-wallet policy seal", next.Command)
	require.Contains(t, next.Say, "[networks.\"eip155:10\"]\nrpc = \"https://mainnet.optimism.io\"")
	require.Contains(t, NetworkOff("eip155:31337").NextStep().Say, `rpc = "https://…"`,
		"where no node is known the person fills one in")
}

// A token that is no dollar is never counted as one: without its owner's rate it is above every limit.
func TestUnrated(t *testing.T) {
	eurc, known := x402.NewRegistry(nil).Named("eip155:8453", "EURC")
	require.True(t, known)
	require.False(t, eurc.Rated())
	require.Greater(t, eurc.Dollars(money.NewAmount(1)), money.Dollars(1)<<62)
	require.Equal(t, money.Amount{}, eurc.Units(1_000_000))
	e := Unrated(eurc)
	require.Equal(t, x402.AskPerson, e.NextStep().Do)
	require.Contains(t, e.NextStep().Say, `symbol = "EURC"`)
	require.Contains(t, e.Details["config"], `usd = "RATE"`)
}
