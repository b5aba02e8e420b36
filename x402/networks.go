package x402

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Networks this package names more than once.
const (
	SolanaMainnet = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	SolanaDevnet  = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	solanaTestnet = "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z"
)

// network is a row of what x402-protocol.md §9 knows of a network.
type network struct {
	caip2   string
	title   string
	testnet bool
	names   []string // the V1 name first, then what else it is called
}

const (
	mainnet = false
	testnet = true
)

// networks: V1 names from x402 2.27 and PayAI's documents; spellings of Solana from documents and
// the seed.
var networks = []network{
	{SolanaMainnet, "Solana", mainnet, []string{"solana", "solana-mainnet", "solana-mainnet-beta",
		"solana:mainnet", "solana:mainnet-beta"}},
	{SolanaDevnet, "Solana Devnet", testnet, []string{"solana-devnet", "solana:devnet"}},
	{solanaTestnet, "Solana Testnet", testnet, []string{"solana-testnet", "solana:testnet"}},
	{"eip155:8453", "Base", mainnet, []string{"base"}},
	{"eip155:84532", "Base Sepolia", testnet, []string{"base-sepolia"}},
	{"eip155:1", "Ethereum", mainnet, []string{"ethereum"}},
	{"eip155:11155111", "Ethereum Sepolia", testnet, []string{"sepolia"}},
	{"eip155:43114", "Avalanche", mainnet, []string{"avalanche"}},
	{"eip155:43113", "Avalanche Fuji", testnet, []string{"avalanche-fuji"}},
	{"eip155:137", "Polygon", mainnet, []string{"polygon"}},
	{"eip155:80002", "Polygon Amoy", testnet, []string{"polygon-amoy"}},
	{"eip155:42161", "Arbitrum One", mainnet, []string{"arbitrum"}},
	{"eip155:421614", "Arbitrum Sepolia", testnet, nil},
	{"eip155:480", "World Chain", mainnet, nil},
	{"eip155:4801", "World Chain Sepolia", testnet, nil},
	{"eip155:143", "Monad", mainnet, []string{"monad"}},
	{"eip155:988", "Stable", mainnet, []string{"stable"}},
	{"eip155:2201", "Stable Testnet", testnet, []string{"stable-testnet"}},
	{"eip155:14", "Flare", mainnet, []string{"flare"}},
	{"eip155:4326", "MegaETH", mainnet, []string{"megaeth"}},
	{"eip155:31612", "Mezo", mainnet, nil},
	{"eip155:31611", "Mezo Testnet", testnet, nil},
	{"eip155:723487", "Radius", mainnet, nil},
	{"eip155:72344", "Radius Testnet", testnet, nil},
	{"eip155:36900", "ADI Chain", mainnet, nil},
	{"eip155:190415", "HPP", mainnet, nil},
	{"eip155:181228", "HPP Sepolia", testnet, nil},
	{"eip155:50", "XDC", mainnet, nil},
	{"eip155:51", "XDC Apothem", testnet, nil},
	{"eip155:38833", "Igra", mainnet, nil},
	{"eip155:42220", "Celo", mainnet, []string{"celo"}},
	{"eip155:11142220", "Celo Sepolia", testnet, nil},
	{"eip155:1329", "Sei", mainnet, []string{"sei"}},
	{"eip155:1328", "Sei Testnet", testnet, []string{"sei-testnet"}},
	{"eip155:4689", "IoTeX", mainnet, []string{"iotex"}},
	{"eip155:3338", "peaq", mainnet, []string{"peaq"}},
	{"eip155:2741", "Abstract", mainnet, []string{"abstract"}},
	{"eip155:11124", "Abstract Testnet", testnet, []string{"abstract-testnet"}},
	{"eip155:1514", "Story", mainnet, []string{"story"}},
	{"eip155:41923", "EDU Chain", mainnet, []string{"educhain"}},
	{"eip155:1187947933", "SKALE Base", mainnet, []string{"skale-base"}},
	{"eip155:324705682", "SKALE Base Sepolia", testnet, []string{"skale-base-sepolia"}},
	{"eip155:196", "X Layer", mainnet, []string{"xlayer"}},
	{"eip155:1952", "X Layer Testnet", testnet, []string{"xlayer-testnet"}},
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
	caip2Form  = regexp.MustCompile(`^[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}$`)
	solanaForm = regexp.MustCompile(`^solana:[1-9A-HJ-NP-Za-km-z]{32}$`)
)

// Network gives the CAIP-2 name of a network as anyone calls it: CAIP-2 itself, a V1 name, a known
// alias. Names are exact. A well-formed CAIP-2 name of a network that is not in the table is a
// network too: the owner may have configured it.
func Network(name string) (caip2 string, ok bool) {
	if n := findNetwork(name); n != nil {
		return n.caip2, true
	}
	switch Namespace(name) {
	case "eip155":
		_, ok = ChainID(name)
	case "solana":
		ok = solanaForm.MatchString(name)
	default:
		ok = caip2Form.MatchString(name)
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

// Title is a network's name for people ("Base Sepolia"), or its CAIP-2 name where it has none here.
func Title(caip2 string) string {
	if n := findNetwork(caip2); n != nil {
		return n.title
	}
	return caip2
}

// ChainID is the chain id of an eip155 network: EIP-712 takes it from here, never from a seller
// (security.md B3).
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

// IsGenesis reports whether a node's full genesis hash (getGenesisHash) is that of a Solana
// network: its CAIP-2 reference is the hash's first 32 characters. A node of another cluster must
// not be believed (security.md B5).
func IsGenesis(caip2, fullHash string) bool {
	reference, ok := strings.CutPrefix(caip2, "solana:")
	return ok && len(reference) == 32 && len(fullHash) > 32 && strings.HasPrefix(fullHash, reference)
}
