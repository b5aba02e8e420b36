package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"x402-wallet/x402"
)

// Complete fills in what a seller left out that asks in X-PAYMENT-AMOUNT and its like: amount and payee are
// enough, as for @ozskr/x402-solana-mcp. The token is USDC, by the buyer's registry. The network is the only
// Solana network among the buyer's; of several none is chosen, because the same address is good on each.
// A challenge that lacks nothing stays as it is.
func (c *Challenge) Complete(networks []string, tokens *x402.Registry) {
	if c == nil || c.lacking == nil {
		return
	}
	entry := c.lacking
	network, err := entry.network(networks)
	if err == nil && !entry.Has("asset") {
		var usdc x402.AssetInfo
		usdc, err = usdcOn(network, tokens)
		entry["asset"], _ = json.Marshal(usdc.Address)
	}
	var r x402.Requirement
	if err == nil {
		entry["network"], _ = json.Marshal(network)
		r, err = x402.ReadRequirement(x402.Object(entry), c.Version)
	}
	if err != nil {
		c.Unreadable[0].Why = err
		return
	}
	r.Dialect = c.Dialect
	c.lacking, c.Unreadable = nil, c.Unreadable[1:]
	c.Accepts = slices.Insert(c.Accepts, 0, r)
}

// plainOption is an option that was spread over headers.
type plainOption x402.Object

func (o plainOption) Has(key string) bool { return x402.Object(o).Has(key) }

// network is the network that the seller names, or the only one that it can mean.
func (o plainOption) network(networks []string) (string, error) {
	if o.Has("network") {
		name, err := x402.Object(o).Identifier("network")
		if network, known := x402.Network(name); known {
			return network, err
		}
		return name, err
	}
	payTo, err := x402.Object(o).Identifier("payTo")
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(payTo, "0x") {
		return "", errors.New("the seller names no network, and an address of EVM is good on many")
	}
	solana := slices.DeleteFunc(slices.Clone(networks), func(n string) bool { return !x402.IsSolana(n) })
	switch len(solana) {
	case 0:
		return "", errors.New("the seller names no network, and this wallet has none of Solana")
	case 1:
		return solana[0], nil
	}
	return "", fmt.Errorf("the seller names no network, and this wallet has several of Solana: %s; the "+
		"call's network chooses one", strings.Join(solana, ", "))
}

func usdcOn(network string, tokens *x402.Registry) (x402.AssetInfo, error) {
	usdc, known := tokens.Named(network, "USDC")
	if !known {
		return usdc, fmt.Errorf("the seller names no token, and no USDC is known on %s",
			x402.QuoteName(network))
	}
	return usdc, nil
}
