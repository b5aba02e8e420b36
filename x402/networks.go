package x402

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mr-tron/base58"

	"x402-wallet/internal/pattern"
)

// Networks this package names more than once.
const (
	SolanaMainnet = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	SolanaDevnet  = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	SolanaTestnet = "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z"
)

type network struct {
	caip2   string
	title   string
	testnet bool
	names   []string // the V1 name first, then what else it is called
}

// networks: V1 names from x402 2.27, PayAI's documents and x402-foundation/x402#690; spellings of Solana
// from documents and from the ozskr wallet.
var networks = []network{
	{caip2: SolanaMainnet, title: "Solana", names: []string{"solana", "solana-mainnet", "solana-mainnet-beta",
		"solana:mainnet", "solana:mainnet-beta"}},
	{caip2: SolanaDevnet, title: "Solana Devnet", testnet: true,
		names: []string{"solana-devnet", "solana:devnet"}},
	{caip2: SolanaTestnet, title: "Solana Testnet", testnet: true,
		names: []string{"solana-testnet", "solana:testnet"}},
	{caip2: "eip155:8453", title: "Base", names: []string{"base"}},
	{caip2: "eip155:84532", title: "Base Sepolia", testnet: true, names: []string{"base-sepolia"}},
	{caip2: "eip155:1", title: "Ethereum", names: []string{"ethereum"}},
	{caip2: "eip155:11155111", title: "Ethereum Sepolia", testnet: true, names: []string{"sepolia"}},
	{caip2: "eip155:43114", title: "Avalanche", names: []string{"avalanche"}},
	{caip2: "eip155:43113", title: "Avalanche Fuji", testnet: true, names: []string{"avalanche-fuji"}},
	{caip2: "eip155:137", title: "Polygon", names: []string{"polygon"}},
	{caip2: "eip155:80002", title: "Polygon Amoy", testnet: true, names: []string{"polygon-amoy"}},
	{caip2: "eip155:42161", title: "Arbitrum One", names: []string{"arbitrum"}},
	{caip2: "eip155:421614", title: "Arbitrum Sepolia", testnet: true},
	{caip2: "eip155:10", title: "OP Mainnet"},
	{caip2: "eip155:11155420", title: "OP Sepolia", testnet: true},
	{caip2: "eip155:130", title: "Unichain"},
	{caip2: "eip155:1301", title: "Unichain Sepolia", testnet: true},
	{caip2: "eip155:480", title: "World Chain"},
	{caip2: "eip155:4801", title: "World Chain Sepolia", testnet: true},
	{caip2: "eip155:56", title: "BNB Smart Chain"},
	{caip2: "eip155:143", title: "Monad", names: []string{"monad"}},
	{caip2: "eip155:10143", title: "Monad Testnet", testnet: true, names: []string{"monad-testnet"}},
	{caip2: "eip155:4663", title: "Robinhood Chain"},
	{caip2: TempoMainnet, title: "Tempo"},
	{caip2: TempoTestnet, title: "Tempo Testnet", testnet: true},
	{caip2: "eip155:5042", title: "Arc"},
	{caip2: "eip155:5042002", title: "Arc Testnet", testnet: true},
	{caip2: "eip155:988", title: "Stable", names: []string{"stable"}},
	{caip2: "eip155:2201", title: "Stable Testnet", testnet: true, names: []string{"stable-testnet"}},
	{caip2: "eip155:14", title: "Flare", names: []string{"flare"}},
	{caip2: "eip155:4326", title: "MegaETH", names: []string{"megaeth"}},
	{caip2: "eip155:31612", title: "Mezo"},
	{caip2: "eip155:31611", title: "Mezo Testnet", testnet: true},
	{caip2: "eip155:723487", title: "Radius"},
	{caip2: "eip155:72344", title: "Radius Testnet", testnet: true},
	{caip2: "eip155:36900", title: "ADI Chain"},
	{caip2: "eip155:190415", title: "HPP"},
	{caip2: "eip155:181228", title: "HPP Sepolia", testnet: true},
	{caip2: "eip155:50", title: "XDC"},
	{caip2: "eip155:51", title: "XDC Apothem", testnet: true},
	{caip2: "eip155:38833", title: "Igra"},
	{caip2: "eip155:42220", title: "Celo", names: []string{"celo"}},
	{caip2: "eip155:11142220", title: "Celo Sepolia", testnet: true},
	{caip2: "eip155:1329", title: "Sei", names: []string{"sei"}},
	{caip2: "eip155:1328", title: "Sei Testnet", testnet: true, names: []string{"sei-testnet"}},
	{caip2: "eip155:4689", title: "IoTeX", names: []string{"iotex"}},
	{caip2: "eip155:3338", title: "peaq", names: []string{"peaq"}},
	{caip2: "eip155:2741", title: "Abstract", names: []string{"abstract"}},
	{caip2: "eip155:11124", title: "Abstract Testnet", testnet: true, names: []string{"abstract-testnet"}},
	{caip2: "eip155:1514", title: "Story", names: []string{"story"}},
	{caip2: "eip155:41923", title: "EDU Chain", names: []string{"educhain"}},
	{caip2: "eip155:1187947933", title: "SKALE Base", names: []string{"skale-base"}},
	{caip2: "eip155:324705682", title: "SKALE Base Sepolia", testnet: true,
		names: []string{"skale-base-sepolia"}},
	{caip2: "eip155:196", title: "X Layer", names: []string{"xlayer"}},
	{caip2: "eip155:1952", title: "X Layer Testnet", testnet: true, names: []string{"xlayer-testnet"}},
}

// findNetwork is the row of a network by any of its names; nil when there is none.
func findNetwork(name string) *network {
	for i := range networks {
		if n := &networks[i]; n.caip2 == name || slices.Contains(n.names, name) {
			return n
		}
	}
	return nil
}

// CAIP-2 in general, and the two namespaces whose references have a form of their own: a chain id
// (no leading zero, or one chain would have two names), and the first 32 characters of a genesis
// hash in base58.
var (
	caip2Form  = pattern.Lazy(`^[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}$`)
	solanaForm = pattern.Lazy(`^solana:[1-9A-HJ-NP-Za-km-z]{32}$`)
)

// Network gives the CAIP-2 name of a network as anyone calls it: CAIP-2 itself, a V1 name, a known
// alias. Names are exact. A well-formed CAIP-2 name of a network that is not in the table is a
// network too: the owner may have configured it.
func Network(name string) (caip2 string, ok bool) {
	if n := findNetwork(name); n != nil {
		return n.caip2, true
	}
	if caip2, ok := aliases[name]; ok {
		return caip2, true
	}
	switch Namespace(name) {
	case "eip155":
		_, ok = ChainID(name)
	case "solana":
		ok = solanaForm().MatchString(name)
	default:
		ok = caip2Form().MatchString(name)
	}
	if !ok {
		return "", false
	}
	return name, true
}

// V1Name is what protocol version 1 calls a network; false where it has no name there.
func V1Name(caip2 string) (name string, ok bool) {
	n := findNetwork(caip2)
	if n == nil || n.caip2 != caip2 || len(n.names) == 0 {
		return "", false
	}
	return n.names[0], true
}

// IsTestnet reports whether a network's money is known to be worthless. What is not known is taken
// for real.
func IsTestnet(caip2 string) bool {
	n := findNetwork(caip2)
	return n != nil && n.testnet
}

// NetworkName is a network's name where there is little room, or its CAIP-2 name stands beside it: "Base
// Sepolia". It is the CAIP-2 name where there is no other here.
func NetworkName(caip2 string) string {
	if n := findNetwork(caip2); n != nil {
		return n.title
	}
	return caip2
}

// Title is how a text names a network: by its name and exactly, "Base Sepolia (eip155:84532)".
func Title(caip2 string) string {
	if n := findNetwork(caip2); n != nil {
		return n.title + " (" + n.caip2 + ")"
	}
	return caip2
}

// ChainID is the chain id of an eip155 network: EIP-712 takes it from here, never from a seller.
func ChainID(caip2 string) (id uint64, ok bool) {
	reference, ok := strings.CutPrefix(caip2, "eip155:")
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(reference, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatUint(id, 10) == reference
}

// Namespace is the family of chains that a CAIP-2 name is of: "eip155", "solana", "rooch".
func Namespace(caip2 string) string {
	namespace, _, _ := strings.Cut(caip2, ":")
	return namespace
}

// IsSolana reports whether caip2 names a Solana network, where token amounts have 64 bits.
func IsSolana(caip2 string) bool { return strings.HasPrefix(caip2, "solana:") }

// DecodeBase58 reads exactly size bytes in their one spelling. It returns nil if the text is anything else. A
// text that is too long for so many bytes is not decoded, because that takes the square of its length.
func DecodeBase58(text string, size int) []byte {
	if len(text) > size*138/100+1 { // log 256 / log 58 < 1.38
		return nil
	}
	data, err := base58.Decode(text)
	if err != nil || len(data) != size {
		return nil
	}
	return data
}

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
	"robinhood": "eip155:4663", "tempo": TempoMainnet, "tempo-moderato": TempoTestnet,
	"Solana": SolanaMainnet, "solana_devnet": SolanaDevnet,
}
