package budget

import (
	"math/big"

	"x402-wallet/x402/money"
)

// MaxPrice is the most that a payment whose price is not known yet may turn out to cost, so that
// Decide lets it pass: what the owner lets be paid for one call, what is left of each window, and
// no more than is paid without asking, or than a person approved. Where not even something free
// would pass, the error is Decide's.
func (r Rules) MaxPrice(a Ask, approved money.Dollars, facts Facts) (money.Dollars, error) {
	a.Price = 0
	if _, err := r.decide(a, facts); err != nil {
		return 0, err
	}
	unasked := r.ApproveAbove
	if last := facts.Payee.LastPrice; last != nil && r.PriceJump != 0 {
		unasked = min(unasked, r.beforeJump(*last))
	}
	most := min(r.PerCall, max(unasked, approved))
	for _, w := range r.windows(facts, r.hostEntries(a.Host)) {
		if w.limit != nil {
			most = min(most, w.limit.SubFloor(w.use.Total()))
		}
	}
	return most, nil
}

// beforeJump is the highest price that jumps does not find.
func (r Rules) beforeJump(last money.Dollars) money.Dollars {
	factor, ok := r.jumpFactor()
	if !ok {
		return last
	}
	limit := factor.Mul(factor, new(big.Rat).SetInt64(int64(last)))
	whole := new(big.Int).Quo(limit.Num(), limit.Denom())
	if !whole.IsInt64() {
		return r.PerCall
	}
	price := money.Dollars(whole.Int64())
	if r.jumps(last, price) {
		price--
	}
	return max(price, last)
}

// minLastPrice is the lowest last price from which a price does not jump.
func (r Rules) minLastPrice(price money.Dollars) money.Dollars {
	factor, ok := r.jumpFactor()
	if !ok {
		return 0
	}
	limit := new(big.Rat).SetInt64(int64(price))
	limit.Quo(limit, factor)
	whole := new(big.Int).Quo(limit.Num(), limit.Denom())
	if !whole.IsInt64() || whole.Int64() >= int64(price) {
		return price
	}
	return money.Dollars(whole.Int64() + 1)
}
