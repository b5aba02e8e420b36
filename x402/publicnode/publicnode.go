// Package publicnode has the nodes that are asked where the owner named none. What must stay true: a network
// has one here only if facilitators settle on it, since a node is believed about what became of a payment.
package publicnode

import (
	"maps"
	"slices"

	"x402-wallet/x402"
)

// publicNodes are nodes that anybody may ask without a key. They are used for a network for which the
// owner named none, where the rules allow that. Each is the network's own, as its documentation and viem
// 2.57 (chains/definitions) name it; for Polygon viem's, because the network's own was closed.
//
// A node is believed about what became of a payment, so this list is short on purpose: a network is in
// it when facilitators settle on it. What such a node may free: docs/threat-model.md.
var publicNodes = map[string]string{
	x402.SolanaMainnet: "https://api.mainnet-beta.solana.com", // solana.com/docs/references/clusters
	x402.SolanaDevnet:  "https://api.devnet.solana.com",
	x402.SolanaTestnet: "https://api.testnet.solana.com",

	"eip155:8453":       "https://mainnet.base.org",
	"eip155:84532":      "https://sepolia.base.org",
	"eip155:1":          "https://ethereum.reth.rs/rpc", // viem
	"eip155:137":        "https://polygon.drpc.org",
	"eip155:80002":      "https://polygon-amoy.drpc.org",
	"eip155:42161":      "https://arb1.arbitrum.io/rpc",
	"eip155:421614":     "https://sepolia-rollup.arbitrum.io/rpc",
	"eip155:10":         "https://mainnet.optimism.io",
	"eip155:11155420":   "https://sepolia.optimism.io",
	"eip155:43114":      "https://api.avax.network/ext/bc/C/rpc",
	"eip155:43113":      "https://api.avax-test.network/ext/bc/C/rpc",
	"eip155:143":        "https://rpc.monad.xyz",
	"eip155:10143":      "https://testnet-rpc.monad.xyz",
	"eip155:4663":       "https://rpc.mainnet.chain.robinhood.com",
	"eip155:4217":       "https://rpc.tempo.xyz",          // viem
	"eip155:42431":      "https://rpc.moderato.tempo.xyz", // viem
	"eip155:5042":       "https://rpc.mainnet.arc.io",
	"eip155:5042002":    "https://rpc.testnet.arc.network",
	"eip155:480":        "https://worldchain-mainnet.g.alchemy.com/public",
	"eip155:4801":       "https://worldchain-sepolia.g.alchemy.com/public",
	"eip155:42220":      "https://forno.celo.org",
	"eip155:11142220":   "https://forno.celo-sepolia.celo-testnet.org",
	"eip155:1329":       "https://evm-rpc.sei-apis.com",
	"eip155:1328":       "https://evm-rpc-testnet.sei-apis.com",
	"eip155:130":        "https://mainnet.unichain.org",
	"eip155:1301":       "https://sepolia.unichain.org",
	"eip155:196":        "https://xlayerrpc.okx.com",
	"eip155:1952":       "https://xlayertestrpc.okx.com",
	"eip155:1187947933": "https://skale-base.skalenodes.com/v1/base",
	"eip155:324705682":  "https://base-sepolia-testnet.skalenodes.com/v1/base-testnet",
}

// Of is the public node of a network; "" where none is built in.
func Of(caip2 string) string { return publicNodes[caip2] }

// Networks are the networks that have a public node, sorted.
func Networks() []string { return slices.Sorted(maps.Keys(publicNodes)) }
