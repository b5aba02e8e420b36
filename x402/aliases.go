package x402

// aliases are what sellers call networks besides their CAIP-2 name and the name of version 1, as seen in
// their answers and in facilitators' documents. Names are exact here too. Where a network has a row in
// networks, its names there come first; a test keeps them apart.
var aliases = map[string]string{
	"base-mainnet": "eip155:8453", "8453": "eip155:8453", "base:mainnet": "eip155:8453",
	"evm:8453": "eip155:8453", "eip155-8453": "eip155:8453", "base-main": "eip155:8453",
	"basesepolia": "eip155:84532", "base-testnet": "eip155:84532", "base_sepolia": "eip155:84532",
	"84532": "eip155:84532", "base:sepolia": "eip155:84532", "evm:84532": "eip155:84532",
	"eth": "eip155:1", "ethereum-mainnet": "eip155:1", "eth-mainnet": "eip155:1",
	"evm:1":            "eip155:1",
	"ethereum-sepolia": "eip155:11155111", "eth-sepolia": "eip155:11155111", "11155111": "eip155:11155111",
	"polygon-pos": "eip155:137", "polygon-mainnet": "eip155:137", "matic": "eip155:137", "137": "eip155:137",
	"evm:137": "eip155:137", "amoy": "eip155:80002", "80002": "eip155:80002",
	"arbitrum-one": "eip155:42161", "arbitrum-mainnet": "eip155:42161", "arb": "eip155:42161",
	"42161": "eip155:42161", "evm:42161": "eip155:42161", "arbitrum-sepolia": "eip155:421614",
	"optimism": "eip155:10", "optimism-mainnet": "eip155:10", "op-mainnet": "eip155:10", "op": "eip155:10",
	"optimism-sepolia": "eip155:11155420", "op-sepolia": "eip155:11155420",
	"avalanche-mainnet": "eip155:43114", "avax": "eip155:43114", "avalanche-c-chain": "eip155:43114",
	"avalanche-c": "eip155:43114", "43114": "eip155:43114", "fuji": "eip155:43113",
	"bsc": "eip155:56", "bsc-mainnet": "eip155:56", "bnb": "eip155:56", "bnb-chain": "eip155:56",
	"binance-smart-chain": "eip155:56", "56": "eip155:56", "bsc-testnet": "eip155:97",
	"monad-mainnet": "eip155:143", "sei-mainnet": "eip155:1329", "celo-mainnet": "eip155:42220",
	"unichain": "eip155:130", "unichain-mainnet": "eip155:130", "linea": "eip155:59144",
	"scroll": "eip155:534352", "gnosis": "eip155:100", "zksync": "eip155:324", "sonic": "eip155:146",
	"world": "eip155:480", "worldchain": "eip155:480", "world-chain": "eip155:480",
	"world-sepolia": "eip155:4801", "x-layer": "eip155:196", "okx-xlayer": "eip155:196",
	"xdc": "eip155:50", "arc": "eip155:5042", "arc-testnet": "eip155:5042002",
	"robinhood": "eip155:4663", "Solana": SolanaMainnet, "solana_devnet": SolanaDevnet,
}
