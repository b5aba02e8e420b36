package x402

import (
	"slices"
	"strings"

	"x402-wallet/x402/money"
)

// Registry is the tokens the wallet trusts: the built-in table and the owner's own entries. A token
// that is not in it is not money (UNTRUSTED_ASSET): anyone can deploy one that calls itself USDC
// (security.md B1). It does not change after NewRegistry, so any number of goroutines may read it.
type Registry struct {
	assets []AssetInfo // a network's first is its default
	index  map[money.Asset]int
}

// NewRegistry is the built-in table with the owner's entries: an entry for a token of the table
// replaces it where it stands, any other is added at the end.
func NewRegistry(extra []AssetInfo) *Registry {
	r := &Registry{index: map[money.Asset]int{}}
	for _, a := range slices.Concat(builtinAssets(), extra) {
		if i, known := r.index[a.Key()]; known {
			r.assets[i] = a
			continue
		}
		r.index[a.Key()] = len(r.assets)
		r.assets = append(r.assets, a)
	}
	return r
}

// Asset finds a token by its address: EVM addresses in any letter case, base58 exactly.
func (r *Registry) Asset(network, address string) (AssetInfo, bool) {
	i, ok := r.index[money.NewAsset(network, address)]
	if !ok {
		return AssetInfo{}, false
	}
	return r.assets[i], true
}

// Default is the token a price in dollars means on a network.
func (r *Registry) Default(network string) (AssetInfo, bool) {
	return r.first(func(a AssetInfo) bool { return a.Network == network })
}

// BySymbol finds a token by its symbol in any letter case; of several, the one that comes first in
// the registry.
func (r *Registry) BySymbol(network, symbol string) (AssetInfo, bool) {
	return r.first(func(a AssetInfo) bool {
		return a.Network == network && strings.EqualFold(a.Symbol, symbol)
	})
}

func (r *Registry) first(is func(AssetInfo) bool) (AssetInfo, bool) {
	if i := slices.IndexFunc(r.assets, is); i >= 0 {
		return r.assets[i], true
	}
	return AssetInfo{}, false
}

// Assets are the tokens of a network, its default first.
func (r *Registry) Assets(network string) []AssetInfo {
	return slices.DeleteFunc(slices.Clone(r.assets), func(a AssetInfo) bool { return a.Network != network })
}

// Networks are the networks that have a token, in the registry's order.
func (r *Registry) Networks() (names []string) {
	for _, a := range r.assets {
		if !slices.Contains(names, a.Network) {
			names = append(names, a.Network)
		}
	}
	return names
}

// dollar is the price of one whole token of everything built in: all are dollar stablecoins.
const dollar money.Dollars = 1_000_000

// token is an EVM row: x402 2.27 evm/src/defaultAssets.ts, and the table of npm x402 1.2.0 for what
// only V1 has.
type token struct {
	network, address, symbol string
	decimals                 uint8
	name, version            string // EIP-712 domain
	permit2Only              bool
}

// mint is a Solana row: x402 2.27 svm/src/defaultAssets.ts. All have 6 decimals.
type mint struct {
	network, address, symbol string
	token2022                bool
}

func builtinAssets() (all []AssetInfo) {
	for _, m := range mints {
		all = append(all, AssetInfo{Network: m.network, Address: m.address, Symbol: m.symbol, Decimals: 6,
			USD:       dollar,
			Token2022: m.token2022})
	}
	for _, t := range tokens {
		all = append(all, AssetInfo{Network: t.network, Address: t.address, Symbol: t.symbol,
			Decimals: t.decimals, USD: dollar,
			Name: t.name, Version: t.version, Permit2Only: t.permit2Only})
	}
	return all
}

const token2022 = true

var mints = []mint{
	{network: SolanaMainnet, address: "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", symbol: "USDC",
		token2022: false},
	{network: SolanaMainnet, address: "Es9vMFrzaCERmJfrF4H2FYD4KCoNkY11McCe8BenwNYB", symbol: "USDT",
		token2022: false},
	{network: SolanaMainnet, address: "2u1tszSeqZ3qBWF3uNGPFc8TzMk2tdiwknnRMWGWjGWH", symbol: "USDG",
		token2022: token2022},
	{network: SolanaMainnet, address: "2b1kV6DkPAnxd5ixfnxCpjxmKwqjjaYmCZfHsFu24GXo", symbol: "PYUSD",
		token2022: token2022},
	{network: SolanaMainnet, address: "CASHx9KJUStyftLFWGvEVf59SGeG9sh5FfcnZMVPCASH", symbol: "CASH",
		token2022: token2022},
	{network: SolanaDevnet, address: "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", symbol: "USDC",
		token2022: false},
	{network: SolanaDevnet, address: "4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7", symbol: "USDG",
		token2022: token2022},
	{network: SolanaDevnet, address: "CXk2AMBfi3TwaEL2468s6zP8xq9NxTXjp9gjMgzeUynM", symbol: "PYUSD",
		token2022: token2022},
	{network: solanaTestnet, address: "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", symbol: "USDC",
		token2022: false},
	{network: solanaTestnet, address: "4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7", symbol: "USDG",
		token2022: token2022},
	{network: solanaTestnet, address: "CXk2AMBfi3TwaEL2468s6zP8xq9NxTXjp9gjMgzeUynM", symbol: "PYUSD",
		token2022: token2022},
}

const permit2Only = true

var tokens = []token{
	{network: "eip155:8453", address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", symbol: "USDC",
		decimals: 6, name: "USD Coin", version: "2", permit2Only: false},
	{network: "eip155:84532", address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:1", address: "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", symbol: "USDC", decimals: 6,
		name: "USD Coin", version: "2", permit2Only: false},
	{network: "eip155:43114", address: "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", symbol: "USDC",
		decimals: 6, name: "USD Coin", version: "2", permit2Only: false},
	{network: "eip155:137", address: "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359", symbol: "USDC",
		decimals: 6, name: "USD Coin", version: "2", permit2Only: false},
	{network: "eip155:42161", address: "0xaf88d065e77c8cC2239327C5EDb3A432268e5831", symbol: "USDC",
		decimals: 6, name: "USD Coin", version: "2", permit2Only: false},
	{network: "eip155:421614", address: "0x75faf114eafb1BDbe2F0316DF893fd58CE46AA4d", symbol: "USDC",
		decimals: 6, name: "USD Coin", version: "2", permit2Only: false},
	{network: "eip155:143", address: "0x754704Bc059F8C67012fEd69BC8A327a5aafb603", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:988", address: "0x779Ded0c9e1022225f8E0630b35a9b54bE713736", symbol: "USDT0",
		decimals: 6, name: "USDT0", version: "1", permit2Only: false},
	{network: "eip155:2201", address: "0x78Cf24370174180738C5B8E352B6D14c83a6c9A9", symbol: "USDT0",
		decimals: 6, name: "USDT0", version: "1", permit2Only: false},
	{network: "eip155:14", address: "0xe7cd86e13AC4309349F30B3435a9d337750fC82D", symbol: "USDT0",
		decimals: 6, name: "USD₮0", version: "1", permit2Only: false},
	{network: "eip155:4326", address: "0xFAfDdbb3FC7688494971a79cc65DCa3EF82079E7", symbol: "MegaUSD",
		decimals: 18, name: "MegaUSD", version: "1", permit2Only: permit2Only},
	{network: "eip155:31612", address: "0xdD468A1DDc392dcdbEf6db6e34E89AA338F9F186", symbol: "mUSD",
		decimals: 18, name: "Mezo USD", version: "1", permit2Only: permit2Only},
	{network: "eip155:31611", address: "0x118917a40FAF1CD7a13dB0Ef56C86De7973Ac503", symbol: "mUSD",
		decimals: 18, name: "Mezo USD", version: "1", permit2Only: permit2Only},
	{network: "eip155:723487", address: "0x33ad9e4BD16B69B5BFdED37D8B5D9fF9aba014Fb", symbol: "SBC",
		decimals: 6, name: "Stable Coin", version: "1",
		permit2Only: permit2Only},
	{network: "eip155:72344", address: "0x33ad9e4BD16B69B5BFdED37D8B5D9fF9aba014Fb", symbol: "SBC",
		decimals: 6, name: "Stable Coin", version: "1", permit2Only: permit2Only},
	{network: "eip155:36900", address: "0x9cb8142aEBBcdc60AF7c97Af897A67A8f3CA71C2", symbol: "USDC.e",
		decimals: 6, name: "USDC.e", version: "2", permit2Only: false},
	{network: "eip155:190415", address: "0x401eCb1D350407f13ba348573E5630B83638E30D", symbol: "USDC.e",
		decimals: 6, name: "Bridged USDC", version: "2", permit2Only: false},
	{network: "eip155:181228", address: "0x401eCb1D350407f13ba348573E5630B83638E30D", symbol: "USDC.e",
		decimals: 6, name: "Bridged USDC", version: "2", permit2Only: false},
	{network: "eip155:50", address: "0xfA2958CB79b0491CC627c1557F441eF849Ca8eb1", symbol: "USDC", decimals: 6,
		name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:51", address: "0xb5AB69F7bBada22B28e79C8FFAECe55eF1c771D4", symbol: "USDC", decimals: 6,
		name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:38833", address: "0xA5b8BF902b2844dA17d4506cc827F7F1681735E7", symbol: "USDC",
		decimals: 6, name: "USDC", version: "1", permit2Only: permit2Only},
	{network: "eip155:42220", address: "0xcebA9300f2b948710d2653dD7B07f33A8B32118C", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:42220", address: "0x48065fbBE25f71C9282ddf5e1cD6D6A887483D5e", symbol: "USDT",
		decimals: 6, name: "Tether USD", version: "1", permit2Only: false},
	{network: "eip155:42220", address: "0xD2ab3C9A02DBBAB236BfEC45D1d755DF4267F771", symbol: "USAT",
		decimals: 6, name: "Tether America USD", version: "1",
		permit2Only: false},
	{network: "eip155:11142220", address: "0x01C5C0122039549AD1493B8220cABEdD739BC44E", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:1329", address: "0xe15fC38F6D8c56aF07bbCBe3BAf5708A2Bf42392", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:1328", address: "0x4fCF1784B31630811181f670Aea7A7bEF803eaED", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	// Only in version 1.
	{network: "eip155:43113", address: "0x5425890298aed601595a70AB815c96711a31Bc65", symbol: "USDC",
		decimals: 6, name: "USD Coin", version: "2", permit2Only: false},
	{network: "eip155:80002", address: "0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:4689", address: "0xcdf79194c6c285077a58da47641d4dbe51f63542", symbol: "USDC",
		decimals: 6, name: "Bridged USDC", version: "2", permit2Only: false},
	{network: "eip155:3338", address: "0xbbA60da06c2c5424f03f7434542280FCAd453d10", symbol: "USDC",
		decimals: 6, name: "USDC", version: "2", permit2Only: false},
	{network: "eip155:2741", address: "0x84a71ccd554cc1b02749b35d22f684cc8ec987e1", symbol: "USDC",
		decimals: 6, name: "Bridged USDC", version: "2", permit2Only: false},
	{network: "eip155:11124", address: "0xe4C7fBB0a626ed208021ccabA6Be1566905E2dFc", symbol: "USDC",
		decimals: 6, name: "Bridged USDC", version: "2", permit2Only: false},
	{network: "eip155:1514", address: "0xF1815bd50389c46847f0Bda824eC8da914045D14", symbol: "USDC",
		decimals: 6, name: "Bridged USDC", version: "2", permit2Only: false},
	{network: "eip155:41923", address: "0x12a272A581feE5577A5dFa371afEB4b2F3a8C2F8", symbol: "USDC",
		decimals: 6, name: "Bridged USDC (Stargate)", version: "2",
		permit2Only: false},
	{network: "eip155:324705682", address: "0x2e08028E3C4c2356572E096d8EF835cD5C6030bD", symbol: "USDC",
		decimals: 6,
		name:     "Bridged USDC (SKALE Bridge)", version: "2", permit2Only: false},
}
