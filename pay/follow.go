package pay

import (
	"context"

	"x402-wallet/seller"
)

// follow is the answer that a paid one leads to by a redirect within its origin (302, 303, …): it is asked
// for with GET and without the payment, by the rules for redirects before a payment. What came with the
// payment counts where it leads nowhere, or to a refusal.
func (e *Engine) follow(ctx context.Context, r seller.Request, paid *seller.Answer) *seller.Answer {
	next, leads := seller.Onward(r, paid)
	if !leads {
		return paid
	}
	goods, err := e.Transport.Ask(ctx, next)
	if err != nil {
		e.Log.Warn("follow the redirect of a paid answer", "err", err)
		return paid
	}
	if !isOK(goods.Status) {
		goods.Release()
		return paid
	}
	if paid.Settlement != nil || paid.SettlementErr != nil {
		goods.Settlement, goods.SettlementErr = paid.Settlement, paid.SettlementErr
	}
	paid.Release()
	return goods
}
