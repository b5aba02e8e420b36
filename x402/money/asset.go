package money

import "strings"

// Asset names a token: a CAIP-2 network and the token's address there. It is a map key, so build it
// with NewAsset.
type Asset struct{ Network, Address string }

// NewAsset folds the letter case of EVM addresses, which mean the same in any case; base58 is kept
// as it is.
func NewAsset(network, address string) Asset {
	if strings.HasPrefix(network, "eip155:") {
		address = strings.ToLower(address)
	}
	return Asset{Network: network, Address: address}
}

// String is network/address, for messages.
func (a Asset) String() string { return a.Network + "/" + a.Address }
