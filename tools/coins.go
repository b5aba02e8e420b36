package tools

import (
	"cmp"
	"slices"

	"x402-wallet/x402"
)

// coins are the symbols of networks' own money, where that is not ETH.
var coins = map[string]string{"eip155:137": "POL", "eip155:80002": "POL", "eip155:43114": "AVAX",
	"eip155:43113": "AVAX", "eip155:56": "BNB", "eip155:143": "MON", "eip155:10143": "MON",
	"eip155:14": "FLR", "eip155:31612": "BTC", "eip155:31611": "BTC", "eip155:50": "XDC",
	"eip155:51": "TXDC", "eip155:42220": "CELO", "eip155:11142220": "CELO", "eip155:1329": "SEI",
	"eip155:1328": "SEI", "eip155:4689": "IOTX", "eip155:3338": "PEAQ", "eip155:1514": "IP",
	"eip155:41923": "EDU", "eip155:196": "OKB", "eip155:1952": "OKB"}

// ether are the networks of Ethereum's own money.
var ether = []string{"eip155:1", "eip155:11155111", "eip155:8453", "eip155:84532", "eip155:42161",
	"eip155:421614", "eip155:10", "eip155:11155420", "eip155:130", "eip155:1301", "eip155:480", "eip155:4801",
	"eip155:4326", "eip155:2741", "eip155:11124", "eip155:4663"}

// paidByToken are the networks whose own money is their default token, counted in 18 decimals: what one has
// of it is in the token's row already.
var paidByToken = []string{"eip155:5042", "eip155:5042002", "eip155:988", "eip155:2201"}

// coinOf is what a network's own money is called, which fees are paid in, and its decimals; "coin" where
// nobody knows.
func coinOf(caip2 string) (symbol string, decimals uint8) {
	switch {
	case x402.IsSolana(caip2):
		return "SOL", 9
	case slices.Contains(ether, caip2):
		return "ETH", 18
	}
	return cmp.Or(coins[caip2], "coin"), 18
}
