package tools

import (
	"cmp"
	"math"
	"slices"

	"x402-wallet/facilitator"
	"x402-wallet/x402/money"
)

// readOffers makes of the offers of MPP in a listing the options that the seller's challenge would have. If
// there are none it says why.
func (s *search) readOffers(l *facilitator.Listing) {
	for _, o := range l.Offers {
		options, err := o.Options(s.Networks, s.Engine.Assets)
		l.Accepts = append(l.Accepts, options...)
		switch {
		case err != nil:
			l.Why = cmp.Or(l.Why, err.Error())
		case len(options) == 0:
			l.Why = untoldTerms
		}
	}
	if len(l.Accepts) > 0 {
		l.Why = ""
	}
}

// cheapestFirst sorts what a directory of MPP lists: of each service its cheapest endpoint, by price, then
// the second of each. A service with many endpoints thus leaves room for others.
func (s *search) cheapestFirst(list []facilitator.Listing) []facilitator.Listing {
	for i := range list {
		s.readOffers(&list[i])
	}
	slices.SortStableFunc(list, func(a, b facilitator.Listing) int {
		return cmp.Compare(s.least(a), s.least(b))
	})
	var turns [][]facilitator.Listing
	before := map[int]int{} // how many of a service
	for _, l := range list {
		n := before[l.Service]
		before[l.Service]++
		if n == len(turns) {
			turns = append(turns, nil)
		}
		turns[n] = append(turns[n], l)
	}
	return slices.Concat(turns...)
}

// least is the lowest price of a listing. What cannot be paid is behind what may have any price.
func (s *search) least(l facilitator.Listing) money.Dollars {
	least := money.Dollars(math.MaxInt64)
	if l.Why == untoldTerms {
		least--
	}
	for _, r := range l.Accepts {
		if asset, isKnown := s.Engine.Assets.Asset(r.Network, r.Asset); isKnown && asset.Rated() {
			least = min(least, asset.Dollars(r.Amount))
		}
	}
	return least
}
