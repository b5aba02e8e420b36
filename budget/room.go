package budget

import (
	"math/big"

	"x402-wallet/x402/money"
)

// MaxPrice is the most that a payment whose price is not known yet may turn out to cost, so that
// Check lets it pass: what the owner lets be paid for one call, what is left of each window, and no
// more than is paid without asking, or than a person said yes to. Where not even something free
// would pass, the error is Check's.
func (r Rules) MaxPrice(a Ask, yes money.Dollars, l Ledger) (money.Dollars, error) {
	a.Price = 0
	if err := r.Check(a, l); err != nil {
		return 0, err
	}
	unasked := r.ApproveAbove
	known, err := l.PayeeHistory(a.Host, a.Payee)
	if err != nil {
		return 0, err
	}
	if last := known.LastPrice; last != nil && r.PriceJump != 0 {
		unasked = min(unasked, r.beforeJump(*last))
	}
	room := min(r.PerCall, max(unasked, yes))
	for _, line := range r.lines(a.Session, a.Host, a.Now) {
		if line.Limit == nil {
			continue
		}
		use, err := l.Used(line.Window)
		if err != nil {
			return 0, err
		}
		room = min(room, line.Limit.SubFloor(use.Spent.Add(use.Held)))
	}
	return room, nil
}

// beforeJump is the highest price that jumps does not find.
func (r Rules) beforeJump(last money.Dollars) money.Dollars {
	times, ok := new(big.Rat).SetString(factor(r.PriceJump))
	if !ok {
		return last
	}
	limit := times.Mul(times, new(big.Rat).SetInt64(int64(last)))
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
