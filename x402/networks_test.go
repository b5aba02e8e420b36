package x402

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/money"
)

func TestNetwork(t *testing.T) {
	for name, want := range map[string]string{
		"base": "eip155:8453", "base-sepolia": "eip155:84532", "eip155:8453": "eip155:8453",
		"ethereum": "eip155:1", "sepolia": "eip155:11155111",
		"polygon-amoy": "eip155:80002", "skale-base-sepolia": "eip155:324705682", "celo": "eip155:42220",
		"flare":  "eip155:14",
		"xlayer": "eip155:196", "arbitrum": "eip155:42161", "skale-base": "eip155:1187947933",
		"sei-testnet": "eip155:1328", "monad": "eip155:143", "monad-testnet": "eip155:10143",
		"robinhood": "eip155:4663", "arc": "eip155:5042", "arc-testnet": "eip155:5042002",
		"solana": SolanaMainnet, "solana-devnet": SolanaDevnet, "solana-testnet": SolanaTestnet,
		"solana:mainnet": SolanaMainnet,
		"solana:devnet":  SolanaDevnet, "solana-mainnet": SolanaMainnet, "solana-mainnet-beta": SolanaMainnet,
		SolanaDevnet:   SolanaDevnet,
		"eip155:31337": "eip155:31337", "eip155:18446744073709551615": "eip155:18446744073709551615",
		"aptos:1": "aptos:1", "stellar:pubnet": "stellar:pubnet",
		// a test validator of the owner's
		"solana:11111111111111111111111111111111": "solana:11111111111111111111111111111111",
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Network(name)
			require.True(t, ok, name)
			require.Equal(t, want, got, name)
		})
	}
	for _, name := range []string{
		"", "Base", "BASE", "base ", "bass", "devnet", "mainnet-beta", "eip155:", "eip155:0", "eip155:08453",
		"eip155:+8453", "eip155:0x2105", "eip155:8453 ",
		"EIP155:8453", "eip155:18446744073709551616", "eip155:base", "solana:", "solana:Devnet",
		"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvd",
		"solana:0OIl4UsFv8P8NJdTREpY1vzqKqZKvdpp", "a:b", "toolongname:1", "aptos:", "aptos:" +
			strings.Repeat("1", 33), "aptos:1\n", ":1",
	} {
		t.Run(name, func(t *testing.T) {
			_, ok := Network(name)
			require.False(t, ok, name)
		})
	}
}

func TestNetworksTable(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range networks {
		for _, name := range append([]string{n.caip2}, n.names...) {
			require.False(t, seen[name], "%s stands twice", name)
			seen[name] = true
			got, ok := Network(name)
			require.True(t, ok && got == n.caip2, name)
		}
		require.NotEmpty(t, n.title)
		require.Equal(t, regexp.MustCompile(`Testnet|Devnet|Sepolia|Fuji|Amoy|Apothem`).MatchString(n.title),
			n.testnet, n.title)
		require.Equal(t, n.title, NetworkName(n.caip2))
		require.Equal(t, n.title+" ("+n.caip2+")", Title(n.caip2))
		require.Equal(t, n.testnet, IsTestnet(n.caip2))
	}
	// 23 EVM names of version 1, PayAI's four more, three of Solana, and monad-testnet.
	count := 0
	for _, n := range networks {
		if name, ok := V1Name(n.caip2); ok {
			count++
			require.NotContains(t, name, ":")
		}
	}
	require.Equal(t, 23+4+3+1, count)
}

func TestNetworkFacts(t *testing.T) {
	name, ok := V1Name(SolanaDevnet)
	require.True(t, ok)
	require.Equal(t, "solana-devnet", name)
	for _, none := range []string{"eip155:421614", "eip155:31337", "base", ""} {
		t.Run(none, func(t *testing.T) {
			_, ok := V1Name(none)
			require.False(t, ok, none)
		})
	}
	require.Equal(t, "eip155:31337", Title("eip155:31337"))
	require.False(t, IsTestnet("eip155:31337"), "what is not known is taken for real")

	id, ok := ChainID("eip155:84532")
	require.True(t, ok)
	require.Equal(t, uint64(84532), id)
	for _, none := range []string{SolanaDevnet, "eip155:", "base", "eip155:-1", "eip155:01"} {
		t.Run(none, func(t *testing.T) {
			_, ok := ChainID(none)
			require.False(t, ok, none)
		})
	}
	require.True(t, IsSolana(SolanaDevnet) && !IsSolana("eip155:1"))
}

func TestRegistry(t *testing.T) {
	r := NewRegistry(nil)
	usdc, ok := r.Asset("eip155:8453", strings.ToLower(baseUSDC))
	require.True(t, ok, "EVM addresses in any letter case")
	require.Equal(t, AssetInfo{Network: "eip155:8453", Address: baseUSDC, Symbol: "USDC", Decimals: 6,
		USD: 1_000_000, Name: "USD Coin", Version: "2"}, usdc)
	_, ok = r.Asset("eip155:8453", baseUSDC[:41]+"4")
	require.False(t, ok, "one nibble off is another token")
	_, ok = r.Asset("eip155:84532", baseUSDC)
	require.False(t, ok, "an address is of one network")
	_, ok = r.Asset(SolanaDevnet, strings.ToLower(devnetUSDC))
	require.False(t, ok, "base58 is exact")
	pyusd, ok := r.Named(SolanaMainnet, "pyusd")
	require.True(t, ok && pyusd.Token2022)
	mega, ok := r.Named("eip155:4326", "")
	require.True(t, ok && mega.Permit2Only)
	require.Equal(t, uint8(18), mega.Decimals)
	celo := r.Assets("eip155:42220")
	require.Equal(t, []string{"USDC", "USDT", "USAT"}, []string{celo[0].Symbol, celo[1].Symbol,
		celo[2].Symbol})
	flare, _ := r.Named("eip155:14", "")
	require.Equal(t, "USD\u20ae0", flare.Name)
	usdg, ok := r.Named("eip155:4663", "")
	require.True(t, ok)
	require.Equal(t, "USDG", usdg.Symbol)
	sepolia, ok := r.Named("eip155:11155111", "")
	require.True(t, ok)
	require.Equal(t, "USDC", sepolia.Symbol)
	_, ok = r.Named("eip155:4801", "")
	require.False(t, ok)
	require.Empty(t, r.Assets("eip155:4801"))
}

func TestRegistryTable(t *testing.T) {
	r := NewRegistry(nil)
	require.Len(t, r.assets, len(builtin), "no token stands twice")
	networks := map[string]bool{}
	base58 := regexp.MustCompile(`^[1-9A-HJ-NP-Za-km-z]{43,44}$`)
	hex := regexp.MustCompile(`^0x[0-9a-fA-F]{40}$`)
	for _, a := range r.assets {
		networks[a.Network] = true
		network, ok := Network(a.Network)
		require.True(t, ok && network == a.Network && Title(network) != network, a.Network)
		if a.Symbol == "EURC" {
			require.False(t, a.Rated(), "a euro is never counted as a dollar")
		} else {
			require.Equal(t, money.Dollars(1_000_000), a.USD)
		}
		require.NotEmpty(t, a.Symbol)
		if a.IsTIP20() { // which has no EIP-3009, and so no domain
			require.Regexp(t, `^0x20[cC]0{21}`, a.Address)
			require.Empty(t, a.Name+a.Version)
			continue
		}
		if IsSolana(a.Network) {
			require.Regexp(t, base58, a.Address)
			require.Empty(t, a.Name+a.Version)
		} else {
			require.Regexp(t, hex, a.Address)
			require.NotEmpty(t, a.Name)
			require.Contains(t, []string{"1", "2"}, a.Version)
		}
	}
	for network := range networks { // a price in dollars means something on each
		first, ok := r.Named(network, "")
		require.True(t, ok && first.Rated(), network)
	}
}

func TestTheOwnersAssetsAddAndOverride(t *testing.T) {
	r := NewRegistry([]AssetInfo{
		{Network: "eip155:8453", Address: strings.ToUpper(baseUSDC[2:]), Symbol: "not the address"},
		{Network: "eip155:8453", Address: "0x" + strings.ToUpper(baseUSDC[2:]), Symbol: "MINE", Decimals: 6,
			USD: 2_000_000, Name: "N", Version: "3"},
		{Network: "eip155:31337", Address: "0x01", Symbol: "PLAY", Decimals: 18, USD: 1},
	})
	a, ok := r.Asset("eip155:8453", baseUSDC)
	require.True(t, ok)
	require.Equal(t, []string{"MINE", "N", "3"}, []string{a.Symbol, a.Name, a.Version})
	a, _ = r.Named("eip155:8453", "")
	require.Equal(t, "MINE", a.Symbol, "an override keeps its place")
	a, ok = r.Named("eip155:31337", "")
	require.True(t, ok)
	require.Equal(t, "PLAY", a.Symbol)
	_, ok = NewRegistry(nil).Asset("eip155:31337", "0x01")
	require.False(t, ok, "registries are apart")
}

// An alias names a network as everybody does, and never another one than the table says.
func TestAliases(t *testing.T) {
	for name, caip2 := range aliases {
		got, ok := Network(name)
		require.True(t, ok && got == caip2, name)
		own, ok := Network(caip2)
		require.True(t, ok && own == caip2, "%s: %s is no CAIP-2 name", name, caip2)
		n := findNetwork(name)
		require.True(t, n == nil || n.caip2 == caip2, "%s is %s in the table", name, Title(caip2))
		require.NotRegexp(t, `^[-a-z]+:[0-9a-zA-Z]{32}`, name)
	}
	for name, want := range map[string]string{"bsc": "eip155:56", "base-mainnet": "eip155:8453",
		"polygon-pos": "eip155:137", "solana-mainnet": SolanaMainnet} {
		got, ok := Network(name)
		require.True(t, ok && got == want, name)
	}
	for _, name := range []string{"Base", "BSC", "mainnet", "devnet", "evm", "1"} {
		_, ok := Network(name)
		require.False(t, ok, "%s could be many", name)
	}
}

const (
	baseUSDC   = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
	devnetUSDC = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
)
