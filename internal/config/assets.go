package config

import (
	"cmp"
	"fmt"
	"slices"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var (
	evmAddress = pattern.Lazy(`^0x[0-9a-fA-F]{40}$`)
	// shown beside every amount: nothing that could look like one
	plainSymbol = pattern.Lazy(`^[A-Za-z0-9$._-]{1,16}$`)
)

func (c *Checker) assets(written *file) (assets []x402.AssetInfo) {
	builtin := x402.NewRegistry(nil)
	for i, f := range written.Assets {
		key := fmt.Sprintf("assets.%d", i)
		f.Network = c.Chain(key+".network", f.Network)
		known, isKnown := f.known(builtin)
		if isKnown {
			f = f.over(known)
		}
		a := x402.AssetInfo{Network: f.Network, Address: f.Address, Symbol: f.Symbol,
			Decimals: uint8(c.Whole(key+".decimals", f.Decimals, -1, 0, 36)), //nolint:gosec // 0 to 36
			USD:      c.rate(key, f, isKnown && !known.Rated()), Name: f.Name, Version: f.Version,
			Token2022: f.Token2022, Permit2Only: isKnown && known.Permit2Only && f.Name == known.Name}
		c.Refuse(!plainSymbol().MatchString(a.Symbol), key+".symbol",
			"%q must be 1 to 16 letters and digits", a.Symbol)
		if f.USD == nil && !isKnown {
			c.warnings = append(c.warnings, fmt.Sprintf("%s.usd is not written, so each %s counts as $1.00 "+
				"against every limit: write what one is worth", key, a.Symbol))
		}
		c.assetForm(key, a)
		twice := slices.ContainsFunc(assets, func(b x402.AssetInfo) bool { return b.Key() == a.Key() })
		c.Refuse(twice, key+".address", "is the same asset as another one here")
		assets = append(assets, a)
	}
	return assets
}

// known finds the built-in token that an entry is about: by its address, or, where it has none, by its
// symbol.
func (f fileAsset) known(builtin *x402.Registry) (x402.AssetInfo, bool) {
	if f.Address == "" && f.Symbol != "" {
		return builtin.Named(f.Network, f.Symbol)
	}
	return builtin.Asset(f.Network, f.Address)
}

// over is the entry with what it leaves out taken from the built-in token.
func (f fileAsset) over(known x402.AssetInfo) fileAsset {
	f.Address, f.Symbol = cmp.Or(f.Address, known.Address), cmp.Or(f.Symbol, known.Symbol)
	if f.Decimals == nil {
		f.Decimals = new(int(known.Decimals))
	}
	if f.Name == "" && f.Version == "" {
		f.Name, f.Version = known.Name, known.Version
	}
	f.Token2022 = f.Token2022 || known.Token2022
	return f
}

// rate is what one token is counted as: what it is worth and the owner's margin, rounded up. Of a token
// that is known to be no dollar the owner has to write both.
func (c *Checker) rate(key string, f fileAsset, noDollar bool) money.Dollars {
	if noDollar {
		c.Refuse(f.USD == nil, key+".usd", "is missing: %s is no dollar; write what one is worth today, "+
			`like "1.17"`, f.Symbol)
		c.Refuse(f.Margin == nil, key+".margin", `is missing: how much more than usd is counted, in case the `+
			`rate rises; "0.02" is 2 %%`)
	}
	const whole = 1_000_000 // of a margin: 100 %
	usd, margin := c.dollars(key+".usd", f.USD, "1.00"), c.dollars(key+".margin", f.Margin, "0")
	c.Refuse(usd == 0, key+".usd", "is 0, so budgets would not count it; it must be above 0")
	c.Refuse(margin > whole, key+".margin", `is a part of usd, from "0" to "1": "0.02" is 2 %%`)
	return money.DollarsOf(money.NewAmount(uint64(whole+min(margin, whole))), 6, usd)
}

// assetForm checks what differs by chain: the address, and who knows the signing domain.
func (c *Checker) assetForm(key string, a x402.AssetInfo) {
	if x402.IsSolana(a.Network) {
		c.Refuse(!isSolanaAddress(a.Address), key+".address",
			"%q is not a Solana mint (base58 of 32 bytes)", a.Address)
		c.Refuse(a.Name != "" || a.Version != "", key,
			"name and version are the EIP-712 domain of an EVM token; a Solana mint has none")
		return
	}
	c.Refuse(!evmAddress().MatchString(a.Address), key+".address",
		"%q is not an EVM address (0x and 40 hex digits)", a.Address)
	c.Refuse(a.Name == "" || a.Version == "", key,
		"needs name and version, the token's EIP-712 domain: they are never taken from the seller")
	c.Refuse(a.Token2022, key+".token2022", "is for Solana mints only")
}
