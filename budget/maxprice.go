package budget

import (
	"math/big"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// MaxPrice is the most that a payment whose price is not known yet may turn out to cost, so that
// Decide lets it pass: what the owner lets be paid for one call, what is left of each window, and
// no more than is paid without asking, or than a person approved. Where not even something free
// would pass, the error is Decide's.
func (r Rules) MaxPrice(a Ask, approved money.Dollars, facts Facts) (money.Dollars, error) {
	a.Price = 0
	if _, err := r.Decide(a, facts); err != nil {
		return 0, err
	}
	return r.maxPrice(a, approved, facts), nil
}

// maxPrice is MaxPrice where something free passes.
func (r Rules) maxPrice(a Ask, approved money.Dollars, facts Facts) money.Dollars {
	unasked := r.ApproveAbove
	if last := facts.Payee.LastPrice; last != nil && r.PriceJump != 0 {
		unasked = min(unasked, r.beforeJump(*last))
	}
	most, _ := r.Limit(a, facts)
	return min(most, max(unasked, approved))
}

// Limit is what the owner's limits leave for one payment, whoever approves it, and what refuses a call that
// turns out to cost more than that. How much more nobody knows; a.Price is what its caller offers.
func (r Rules) Limit(a Ask, facts Facts) (most money.Dollars, over *x402.Error) {
	most = money.MaxDollars
	var tightest window
	for _, w := range r.calls(a.Agent) {
		if *w.limit < most {
			most, tightest = *w.limit, w
		}
	}
	for _, w := range r.windows(facts, r.hostEntries(a.Host), a.Agent) {
		if w.limit == nil {
			continue
		}
		if left := w.limit.SubFloor(w.use.Total()); left < most {
			most, tightest = left, w
		}
	}
	return most, clockHint(costsMore(tightest, max(a.Price, r.PerCall), most), facts)
}

// costsMore is the refusal of a call that costs more than is left of a limit. enough is what the owner is
// asked to make room for.
func costsMore(w window, enough, left money.Dollars) *x402.Error {
	has := "your " + w.titled() + " of " + w.limit.Price() + " has " + left.Price() + " left"
	e := w.detailed(x402.Errorf(x402.BudgetExceeded, "the call costs more than the %s that is left of the "+
		"owner's %s of %s", left.Price(), w.titled(), w.limit.Price()))
	if w.isCall() {
		if enough <= *w.limit { // nobody offered more: twice as much is a step that is easy to refuse
			enough = w.limit.Add(*w.limit)
		}
		has = "your limit for one call is " + left.Price()
		e.Message = "the call costs more than the owner's limit of " + left.Price() + " for one call"
		if w.isNodes() {
			has = "your " + w.named() + " is " + left.Price()
			e.Message += " of" + whose(w.covers)
		}
	} else {
		has += ", until it resets at " + x402.Stamp(w.resets)
	}
	next := x402.Next{Do: x402.AskPerson, Command: w.command(enough),
		Say: "The call costs more than I may pay: " + has + ". Please raise it if you want it to be paid."}
	e.FixedBy = x402.ByPerson
	return e.WithHint("a higher maxAmount does not help: the limit is the owner's").WithNext(next)
}

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
