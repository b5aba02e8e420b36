package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/remedy"
)

const eurcOnBase = "[[assets]]\nnetwork = \"base\"\nsymbol = \"EURC\"\n"

func TestRateOfAToken(t *testing.T) {
	c := must.Get(Parse([]byte(eurcOnBase + "usd = \"1.17\"\nmargin = \"0.02\"")))(t)
	assert.Empty(t, c.Warnings)
	eurc, known := x402.NewRegistry(c.Assets).Named(Base, "EURC")
	require.True(t, known)
	assert.Equal(t, x402.AssetInfo{Network: Base, Address: "0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42",
		Symbol: "EURC", Decimals: 6, USD: 1_193_400, Name: "EURC", Version: "2"}, eurc)
	assert.Equal(t, money.Dollars(1_193_400), eurc.Dollars(money.NewAmount(1_000_000)))
	assert.Equal(t, money.Dollars(2), eurc.Dollars(money.NewAmount(1)), "rounded up")

	c = must.Get(Parse([]byte(eurcOnBase + "usd = \"1.000001\"\nmargin = \"0.000001\"")))(t)
	assert.Equal(t, money.Dollars(1_000_003), c.Assets[0].USD, "the margin is rounded up, too")

	for fault, says := range map[string]string{
		"":                                "is no dollar",
		"usd = \"1.17\"":                  "assets.0.margin: is missing",
		"margin = \"0.02\"":               "assets.0.usd: is missing",
		"usd = \"0\"\nmargin = \"0\"":     "must be above 0",
		"usd = \"RATE\"\nmargin = \"0\"":  "not dollars",
		"usd = \"1\"\nmargin = \"1.01\"":  "is a part of usd",
		"usd = \"1\"\nmargin = \"-0.01\"": "not dollars",
	} {
		assert.ErrorContains(t, must.Err(Parse([]byte(eurcOnBase+fault))), says, fault)
	}
}

// The lines that a refusal gives a person to paste are ones that this package reads, once the rate is
// filled in.
func TestLinesToPaste(t *testing.T) {
	eurc, _ := x402.NewRegistry(nil).Named(SolanaMainnet, "EURC")
	assert.ErrorContains(t, must.Err(Parse([]byte(remedy.RateLines(eurc)))), "assets.0.usd")
	c := must.Get(Parse([]byte(strings.Replace(remedy.RateLines(eurc), "RATE", "1.20", 1))))(t)
	assert.Equal(t, money.Dollars(1_224_000), c.Assets[0].USD)
	c = must.Get(Parse([]byte(remedy.NetworkLines("eip155:10"))))(t)
	assert.Equal(t, "https://mainnet.optimism.io", c.Nodes()["eip155:10"])
}

// A rate is a rule: whoever lowers it lets more be spent.
func TestARateIsARule(t *testing.T) {
	parse := func(more string) *Config {
		return must.Get(Parse([]byte(eurcOnBase + more)))(t)
	}
	from := parse("usd = \"1.17\"\nmargin = \"0.02\"")
	assert.True(t, Loosens(Compare(from, parse("usd = \"1.16\"\nmargin = \"0.02\""))))
	assert.True(t, Loosens(Compare(from, parse("usd = \"1.17\"\nmargin = \"0.01\""))))
	none := must.Get(Parse(nil))(t)
	assert.True(t, Loosens(Compare(none, from)), "EURC becomes payable")
}
