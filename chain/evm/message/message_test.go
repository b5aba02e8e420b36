package message

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

var usdc = x402.AssetInfo{Network: "eip155:84532", Address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
	Symbol: "USDC", Decimals: 6, Name: "USDC", Version: "2"}

// Appendix A.9 of the protocol reference, and EIP-20.
func TestTypeHashesAndSelectors(t *testing.T) {
	keccak := func(s string) string { return Hex(crypto.Keccak256([]byte(s))) }
	require.Equal(t, "0x8b73c3c69bb8fe3d512ecc4cf759cc79239f7b179b0ffacaa9a75d522b39400f", keccak(DomainType))
	require.Equal(t, keccak("transferFrom(address,address,uint256)")[:10], Hex(selectTransferFrom))
}

// DOMAIN_SEPARATOR() of USDC as the chain answers it (lab/LAB.md): the chain id comes from CAIP-2,
// the rest from the registry. testdata/domains.json is what tokens of the registry answered others, who
// published it in 2026 with the block or the date.
func TestDomainSeparatorIsTheTokens(t *testing.T) {
	base := x402.AssetInfo{Network: "eip155:8453", Address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		Name: "USD Coin", Version: "2"}
	for want, asset := range map[string]x402.AssetInfo{
		"0x71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818": usdc,
		"0x02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f": base,
	} {
		require.Equal(t, want, must.Get(DomainSeparator(asset))(t).Hex())
	}
	var said []struct{ Network, Asset, Separator string }
	read := must.Get(os.ReadFile("../testdata/domains.json"))(t)
	require.NoError(t, json.Unmarshal(read, &said))
	registry := x402.NewRegistry(nil)
	for _, token := range said {
		asset, known := registry.Asset(token.Network, token.Asset)
		require.True(t, known, token.Asset)
		got := must.Get(DomainSeparator(asset))(t)
		require.Equal(t, token.Separator, got.Hex(), "%s on %s", asset.Symbol, x402.Title(asset.Network))
	}
	for i, bad := range []x402.AssetInfo{
		{Network: "eip155:08453", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: "eip155:", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: "eip155:18446744073709551616", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: "solana:x", Address: base.Address, Name: "USD Coin", Version: "2"},
		{Network: base.Network, Address: base.Address, Version: "2"},
		{Network: base.Network, Address: base.Address, Name: "USD Coin"},
		{Network: base.Network, Address: "0x83", Name: "USD Coin", Version: "2"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			require.Error(t, must.Err(DomainSeparator(bad)), "%+v", bad)
		})
	}
}

func TestParseAddress(t *testing.T) {
	for _, good := range []string{payee, strings.ToLower(payee), "0x" + strings.ToUpper(payee[2:])} {
		t.Run(good, func(t *testing.T) { require.Equal(t, payee, must.Get(ParseAddress(good))(t).Hex()) })
	}
	for _, bad := range []string{"", "0x", payee[2:], payee[:41], payee + "0", "0X" + payee[2:], " " + payee,
		payee[:41] + "g", strings.Replace(payee, "B", "b", 1), "0x" + strings.Repeat("é", 20)} {
		t.Run(bad, func(t *testing.T) {
			require.ErrorIs(t, must.Err(ParseAddress(bad)), errAddress, bad)
		})
	}
}

func TestChannelIDEqualsTheVector(t *testing.T) {
	content := must.Get(os.ReadFile("../testdata/batch-vectors.json"))(t)
	all := must.JSON[map[string]struct {
		ChannelConfig x402.ChannelConfig
		ChannelID     string `json:"channelId"`
		Erc3009Nonce  string
	}](content)(t)
	v := all["batch_channel_id"]
	id := must.Get(ChannelID("eip155:84532", v.ChannelConfig))(t)
	require.Equal(t, v.ChannelID, Hex(id[:]))
	salt := [32]byte{}
	for i := range salt {
		salt[i] = byte(i + 1)
	}
	require.Equal(t, v.Erc3009Nonce, Hex(crypto.Keccak256(id[:], salt[:])))
	v.ChannelConfig.WithdrawDelay++
	require.NotEqual(t, id, must.Get(ChannelID("eip155:84532", v.ChannelConfig))(t))
}
