package config

import (
	"strings"

	"x402-wallet/x402"
)

// payees checks a list of those who may be paid: "0x…" on every EVM network, "eip155:8453:0x…" or "base:0x…"
// on one; likewise of Solana; or the DID of a Nuwa service. EVM addresses are folded to lower case.
func (c *Checker) payees(key string, written []string) (list []string) {
	for _, entry := range written {
		network, address := "", entry
		at := strings.LastIndex(entry, ":")
		isDID := didForm().MatchString(entry)
		if at >= 0 && !isDID {
			network, address = c.Chain(key, entry[:at]), entry[at+1:]
		}
		isEVM, isSolana := evmAddress().MatchString(address), isSolanaAddress(address)
		wrongChain := (isEVM && x402.IsSolana(network)) || (isSolana && x402.Namespace(network) == "eip155")
		switch {
		case !isEVM && !isSolana && !isDID:
			c.Fail(key, `%q is no address; it is written like "0x…", "base:0x…" or a Solana address`, entry)
		case wrongChain:
			c.Fail(key, "%q is an address of another chain than its network", entry)
		}
		if isEVM {
			address = strings.ToLower(address)
		}
		if network != "" {
			address = network + ":" + address
		}
		list = append(list, address)
	}
	return list
}
