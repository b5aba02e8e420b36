package x402

import (
	"slices"
	"strings"

	"x402-wallet/x402/money"
)

// Registry is the tokens the wallet trusts: the built-in table and the owner's own entries. A token
// that is not in it is not money (UNTRUSTED_ASSET): anyone can deploy one that calls itself USDC.
// It does not change after NewRegistry, so any number of goroutines may read it.
type Registry struct {
	assets []AssetInfo // a network's first is its default
	index  map[money.Asset]int
}

// NewRegistry is the built-in table with the owner's entries: an entry for a token of the table
// replaces it where it stands, any other is added at the end.
func NewRegistry(extra []AssetInfo) *Registry {
	r := &Registry{index: map[money.Asset]int{}}
	for _, a := range slices.Concat(builtin, extra) {
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

// Named finds a token as its owner calls it: by its symbol in any letter case (of several, the one
// that comes first in the registry), by its address, or, for "", the network's default: the token
// that a price in dollars means there. What a seller calls by its address is found with Asset alone.
func (r *Registry) Named(network, name string) (AssetInfo, bool) {
	i := slices.IndexFunc(r.assets, func(a AssetInfo) bool {
		return a.Network == network && (name == "" || strings.EqualFold(a.Symbol, name))
	})
	if i >= 0 {
		return r.assets[i], true
	}
	return r.Asset(network, name)
}

// Assets are the tokens of a network, its default first.
func (r *Registry) Assets(network string) []AssetInfo {
	return slices.DeleteFunc(slices.Clone(r.assets), func(a AssetInfo) bool { return a.Network != network })
}

// builtin is the table; each part names its source. Where a token's own DOMAIN_SEPARATOR() is known,
// chain/evm's test builds it again from the row (testdata/domains.json): a wrong name or version only
// makes that token's payments refused, but nothing else would find it.
var builtin = []AssetInfo{
	// npm @x402/svm 2.27, defaultAssets
	spl(SolanaMainnet, "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", "USDC", classic),
	spl(SolanaMainnet, "Es9vMFrzaCERmJfrF4H2FYD4KCoNkY11McCe8BenwNYB", "USDT", classic),
	spl(SolanaMainnet, "2u1tszSeqZ3qBWF3uNGPFc8TzMk2tdiwknnRMWGWjGWH", "USDG", token2022),
	spl(SolanaMainnet, "2b1kV6DkPAnxd5ixfnxCpjxmKwqjjaYmCZfHsFu24GXo", "PYUSD", token2022),
	spl(SolanaMainnet, "CASHx9KJUStyftLFWGvEVf59SGeG9sh5FfcnZMVPCASH", "CASH", token2022),
	spl(SolanaDevnet, "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", "USDC", classic),
	spl(SolanaDevnet, "4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7", "USDG", token2022),
	spl(SolanaDevnet, "CXk2AMBfi3TwaEL2468s6zP8xq9NxTXjp9gjMgzeUynM", "PYUSD", token2022),
	spl(SolanaTestnet, "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", "USDC", classic),
	spl(SolanaTestnet, "4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7", "USDG", token2022),
	spl(SolanaTestnet, "CXk2AMBfi3TwaEL2468s6zP8xq9NxTXjp9gjMgzeUynM", "PYUSD", token2022),

	// USD1: worldlibertyfinancial.com; a mint of SPL Token without extensions. EURC:
	// developers.circle.com/stablecoins/eurc-contract-addresses.
	spl(SolanaMainnet, "USD1ttGY1N17NEEHLmELoaybftRBUSErhqYiQzvEmuB", "USD1", classic),
	euro(spl(SolanaMainnet, "HzwqbKZw8HxMN6bF2yFZNrht3c2iXXzpKcFu7uBEDKtr", "EURC", classic)),

	// npm @x402/evm 2.27, defaultAssets
	evm("eip155:8453", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USDC", 6, "USD Coin", "2"),
	evm("eip155:84532", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC", 6, "USDC", "2"),
	evm("eip155:1", "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", "USDC", 6, "USD Coin", "2"),
	evm("eip155:43114", "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", "USDC", 6, "USD Coin", "2"),
	evm("eip155:137", "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359", "USDC", 6, "USD Coin", "2"),
	evm("eip155:42161", "0xaf88d065e77c8cC2239327C5EDb3A432268e5831", "USDC", 6, "USD Coin", "2"),
	evm("eip155:421614", "0x75faf114eafb1BDbe2F0316DF893fd58CE46AA4d", "USDC", 6, "USD Coin", "2"),
	evm("eip155:143", "0x754704Bc059F8C67012fEd69BC8A327a5aafb603", "USDC", 6, "USDC", "2"),
	evm("eip155:988", "0x779Ded0c9e1022225f8E0630b35a9b54bE713736", "USDT0", 6, "USDT0", "1"),
	evm("eip155:2201", "0x78Cf24370174180738C5B8E352B6D14c83a6c9A9", "USDT0", 6, "USDT0", "1"),
	evm("eip155:14", "0xe7cd86e13AC4309349F30B3435a9d337750fC82D", "USDT0", 6, "USD₮0", "1"),
	permit2(evm("eip155:4326", "0xFAfDdbb3FC7688494971a79cc65DCa3EF82079E7", "MegaUSD", 18, "MegaUSD", "1")),
	permit2(evm("eip155:31612", "0xdD468A1DDc392dcdbEf6db6e34E89AA338F9F186", "mUSD", 18, "Mezo USD", "1")),
	permit2(evm("eip155:31611", "0x118917a40FAF1CD7a13dB0Ef56C86De7973Ac503", "mUSD", 18, "Mezo USD", "1")),
	permit2(evm("eip155:723487", "0x33ad9e4BD16B69B5BFdED37D8B5D9fF9aba014Fb", "SBC", 6, "Stable Coin", "1")),
	permit2(evm("eip155:72344", "0x33ad9e4BD16B69B5BFdED37D8B5D9fF9aba014Fb", "SBC", 6, "Stable Coin", "1")),
	evm("eip155:36900", "0x9cb8142aEBBcdc60AF7c97Af897A67A8f3CA71C2", "USDC.e", 6, "USDC.e", "2"),
	evm("eip155:190415", "0x401eCb1D350407f13ba348573E5630B83638E30D", "USDC.e", 6, "Bridged USDC", "2"),
	evm("eip155:181228", "0x401eCb1D350407f13ba348573E5630B83638E30D", "USDC.e", 6, "Bridged USDC", "2"),
	evm("eip155:50", "0xfA2958CB79b0491CC627c1557F441eF849Ca8eb1", "USDC", 6, "USDC", "2"),
	evm("eip155:51", "0xb5AB69F7bBada22B28e79C8FFAECe55eF1c771D4", "USDC", 6, "USDC", "2"),
	noPermit(permit2(evm("eip155:38833", "0xA5b8BF902b2844dA17d4506cc827F7F1681735E7", "USDC", 6, "USDC",
		"1"))),
	evm("eip155:42220", "0xcebA9300f2b948710d2653dD7B07f33A8B32118C", "USDC", 6, "USDC", "2"),
	evm("eip155:42220", "0x48065fbBE25f71C9282ddf5e1cD6D6A887483D5e", "USDT", 6, "Tether USD", "1"),
	evm("eip155:42220", "0xD2ab3C9A02DBBAB236BfEC45D1d755DF4267F771", "USAT", 6, "Tether America USD", "1"),
	evm("eip155:11142220", "0x01C5C0122039549AD1493B8220cABEdD739BC44E", "USDC", 6, "USDC", "2"),
	evm("eip155:1329", "0xe15fC38F6D8c56aF07bbCBe3BAf5708A2Bf42392", "USDC", 6, "USDC", "2"),
	evm("eip155:1328", "0x4fCF1784B31630811181f670Aea7A7bEF803eaED", "USDC", 6, "USDC", "2"),
	// npm x402 1.2.0: what only version 1 has
	evm("eip155:43113", "0x5425890298aed601595a70AB815c96711a31Bc65", "USDC", 6, "USD Coin", "2"),
	evm("eip155:80002", "0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582", "USDC", 6, "USDC", "2"),
	evm("eip155:4689", "0xcdf79194c6c285077a58da47641d4dbe51f63542", "USDC", 6, "Bridged USDC", "2"),
	evm("eip155:3338", "0xbbA60da06c2c5424f03f7434542280FCAd453d10", "USDC", 6, "USDC", "2"),
	evm("eip155:2741", "0x84a71ccd554cc1b02749b35d22f684cc8ec987e1", "USDC", 6, "Bridged USDC", "2"),
	evm("eip155:11124", "0xe4C7fBB0a626ed208021ccabA6Be1566905E2dFc", "USDC", 6, "Bridged USDC", "2"),
	evm("eip155:1514", "0xF1815bd50389c46847f0Bda824eC8da914045D14", "USDC", 6, "Bridged USDC", "2"),
	evm("eip155:41923", "0x12a272A581feE5577A5dFa371afEB4b2F3a8C2F8", "USDC", 6,
		"Bridged USDC (Stargate)", "2"),
	evm("eip155:324705682", "0x2e08028E3C4c2356572E096d8EF835cD5C6030bD", "USDC", 6,
		"Bridged USDC (SKALE Bridge)", "2"),

	// USDC: developers.circle.com/stablecoins/usdc-contract-addresses
	evm("eip155:10", "0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85", "USDC", 6, "USD Coin", "2"),
	evm("eip155:11155420", "0x5fd84259d66Cd46123540766Be93DFE6D43130D7", "USDC", 6, "USDC", "2"),
	evm("eip155:130", "0x078D782b760474a361dDA0AF3839290b0EF57AD6", "USDC", 6, "USDC", "2"),
	evm("eip155:1301", "0x31d0220469e10c4E71834a79b1f276d740d3768F", "USDC", 6, "USDC", "2"),
	evm("eip155:480", "0x79A02482A880bCE3F13e09Da970dC34db4CD24d1", "USDC", 6, "USDC", "2"),
	evm("eip155:10143", "0x534b2f3A21130d7a60830c2Df862319e593943A3", "USDC", 6, "USDC", "2"),
	evm("eip155:11155111", "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238", "USDC", 6, "USDC", "2"),
	evm("eip155:5042", "0x3600000000000000000000000000000000000000", "USDC", 6, "USDC", "2"),
	evm("eip155:5042002", "0x3600000000000000000000000000000000000000", "USDC", 6, "USDC", "2"),
	// coinbase/x402#288
	evm("eip155:4663", "0x5fc5360D0400a0Fd4f2af552ADD042D716F1d168", "USDG", 6, "Global Dollar", "1"),
	// TIP-20 tokens of Tempo: viem 2.57 (tempo/chains), mppx 0.11 (tempo defaults)
	evm(TempoMainnet, "0x20C000000000000000000000b9537d11c60E8b50", "USDC.e", 6, "", ""),
	evm(TempoMainnet, "0x20c0000000000000000000000000000000000000", "pathUSD", 6, "", ""),
	evm(TempoTestnet, "0x20c0000000000000000000000000000000000000", "pathUSD", 6, "", ""),
	// docs.skale.space, PayAI
	evm("eip155:1187947933", "0x85889c8c714505E0c94b30fcfcF64fE3Ac8FCb20", "USDC", 6,
		"Bridged USDC (SKALE Bridge)", "2"),
	// web3.okx.com/onchainos/dev-docs/payments/supported-networks. The USDC there is the bridged one;
	// Circle's own on X Layer has no known EIP-712 domain.
	evm("eip155:196", "0x779Ded0c9e1022225f8E0630b35a9b54bE713736", "USDT0", 6, "USD₮0", "1"),
	evm("eip155:196", "0x4ae46a509F6b1D9056937BA4500cb143933D2dc8", "USDG", 6, "Global Dollar", "1"),
	evm("eip155:196", "0x74b7F16337b8972027F6196A17a631aC6dE26d22", "USDC", 6, "USD Coin", "2"),
	evm("eip155:1952", "0x9e29b3AaDa05Bf2D2c827Af80Bd28Dc0b9b4FB0c", "USDT0", 6, "USD₮0", "1"),
	// docs.usdt0.to
	evm("eip155:42161", "0xFd086bC7CD5C481DCC9C85ebE478A1C0b69FCbb9", "USDT0", 6, "USD₮0", "1"),
	// USD1: worldlibertyfinancial.com; it has EIP-2612 and no EIP-3009
	permit2(evm("eip155:56", "0x8d0D000Ee44948FC98c9B98A4FA4921476f08B0d", "USD1", 18,
		"World Liberty Financial USD", "1")),
	// PYUSD: paypal's documentation; the domain from x402-rs (network.rs)
	evm("eip155:1", "0x6c3ea9036406852006290770BEdFcAbA0e23A0e8", "PYUSD", 6, "PayPal USD", "1"),
	// EURC: developers.circle.com/stablecoins/eurc-contract-addresses
	euro(evm("eip155:8453", "0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42", "EURC", 6, "EURC", "2")),
	euro(evm("eip155:1", "0x1aBaEA1f7C830bD89Acc67eC4af516284b1bC33c", "EURC", 6, "Euro Coin", "2")),
	euro(evm("eip155:43114", "0xC891EB4cbdEFf6e073e859e987815Ed1505c2ACD", "EURC", 6, "Euro Coin", "2")),
}

// dollar is the price of one whole token of what is built in, but for euro.
const dollar money.Dollars = 1_000_000

const classic, token2022 = false, true

// spl is a token of a Solana network. All have 6 decimals.
func spl(network, mint, symbol string, token2022 bool) AssetInfo {
	return AssetInfo{Network: network, Address: mint, Symbol: symbol, Decimals: 6, USD: dollar,
		Token2022: token2022}
}

// evm is a token of an EVM network; name and version are its EIP-712 domain.
func evm(network, address, symbol string, decimals uint8, name, version string) AssetInfo {
	return AssetInfo{Network: network, Address: address, Symbol: symbol, Decimals: decimals, USD: dollar,
		Name: name, Version: version}
}

// euro is a token that no dollar stands behind: without the owner's rate it is worth nothing that could
// be counted against a limit, so it cannot be paid (AssetInfo.Rated).
func euro(a AssetInfo) AssetInfo {
	a.USD = 0
	return a
}

// permit2 marks a token that has no EIP-3009.
func permit2(a AssetInfo) AssetInfo {
	a.Permit2Only = true
	return a
}

func noPermit(a AssetInfo) AssetInfo {
	a.NoPermit = true
	return a
}
