package facilitator

import (
	"slices"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Limits are which payments the owner gave a facilitator. Of several that take a payment the first in the
// list is asked first.
type Limits struct {
	Assets []string // addresses, or symbols of the registry; empty: all
	// the prices that it takes, both included; 0: no such bound
	MinPrice, MaxPrice money.Dollars
}

// The two classes of networks a Facilitator may name instead of single ones.
const (
	mainnets = "mainnets"
	testnets = "testnets"
)

// Terms are what a facilitator is chosen by. What is not said ("", 0) excludes none.
type Terms struct {
	Network string        // CAIP-2
	Asset   string        // its address
	Symbol  string        // as the registry has it
	Price   money.Dollars // what is signed for, which is the most of what may be settled
}

// serves reports whether the owner gave a facilitator a network, and whether by that very name.
func (f Facilitator) serves(network string) (given, exactly bool) {
	if slices.Contains(f.Networks, network) {
		return true, true
	}
	class := mainnets
	if x402.IsTestnet(network) {
		class = testnets
	}
	return len(f.Networks) == 0 || slices.Contains(f.Networks, class), false
}

// takes reports whether a payment is within the limits.
func (l Limits) takes(t Terms) bool {
	isTaken := func(name string) bool {
		isAddress := name == t.Asset || (strings.HasPrefix(name, "0x") && strings.EqualFold(name, t.Asset))
		return isAddress || (t.Symbol != "" && strings.EqualFold(name, t.Symbol))
	}
	switch {
	case len(l.Assets) > 0 && t.Asset != "" && !slices.ContainsFunc(l.Assets, isTaken):
		return false
	case t.Price == 0:
		return true
	}
	return t.Price >= l.MinPrice && (l.MaxPrice == 0 || t.Price <= l.MaxPrice)
}
