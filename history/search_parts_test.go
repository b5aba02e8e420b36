package history

import (
	"slices"

	"x402-wallet/x402/money"
)

// partsOf is what Parts says of the three dearest, from a look at each payment; many: it may also say
// that they are too many.
func partsOf(rows []row, f Filter) (p Parts, many bool) {
	ids, _, _ := look(rows, f)
	sellers, networks := map[string]money.Dollars{}, map[string]money.Dollars{}
	for _, r := range rows {
		if r.state == Failed || r.usd == 0 || !slices.Contains(ids, r.id) {
			continue
		}
		sellers[r.host] = sellers[r.host].Add(r.usd)
		networks[r.network] = networks[r.network].Add(r.usd)
	}
	p.Sellers, p.Others = dearest(sellers, 3)
	p.Networks, _ = dearest(networks, 3)
	return p, len(ids) > maxEach
}
