package pay

import (
	"context"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// overdueAfter is how long after its end a payment has to be unknown for the owner to be told: until then the
// chain mostly says by itself that it expired.
const overdueAfter = 10 * time.Minute

// lowFunds is what a payment leaves to pay from, where that is little: less than the owner wants to be told
// of, or than a subscription's next slot costs; nil: it is enough. What an owner let the agent spend, they
// can renew by a command, which is theirs to sign: as much as their own rules let be spent in a month.
func (e *Engine) lowFunds(p history.Payment, o option, funds x402.Funds) *history.LowFunds {
	if e.Policy.LowFunds == 0 && p.Subscription() == "" {
		return nil
	}
	left := o.asset.Dollars(funds.Free.SubFloor(p.Amount))
	endsSubscription := p.Subscription() != "" && left < p.Price
	if left >= e.Policy.LowFunds && !endsSubscription {
		return nil
	}
	low := &history.LowFunds{Source: "balance", Left: left, Symbol: o.asset.Symbol}
	switch {
	case o.source != nil:
		low.Source = o.source.Name()
	case funds.Allowance != nil:
		low.Source = "allowance"
	case funds.Delegated != nil && funds.Delegated.Cmp(funds.Balance) <= 0:
		low.Source = "delegation"
	}
	if low.Source != "balance" {
		low.Renew = e.Rules.Month
	}
	return low
}

// alertOverdue tells the owner of a payment that the chain says nothing of although it ended. A voucher waits
// for its seller to claim it, as long as that takes.
func (e *Engine) alertOverdue(ctx context.Context, p history.Payment) {
	end := p.Evidence.ExpiresAt
	isOpen := p.State == history.Submitted || p.State == history.Unknown
	if !isOpen || p.ByVoucher() || end.IsZero() || e.Now().Before(end.Add(overdueAfter)) || !e.isOver(p) {
		return
	}
	if err := e.Store.AlertOverdue(ctx, p); err != nil {
		e.Log.Warn("tell the owner of a payment", "payment", p.ID, "err", err)
	}
}

// alertDamage tells the owner where a call found that the ledger is not as it was left.
func (e *Engine) alertDamage(ctx context.Context, found error) {
	if !x402.HasCode(found, x402.LedgerCorrupt) {
		return
	}
	ctx, cancel := e.Detached(ctx)
	defer cancel()
	if err := e.Store.AlertDamage(ctx, x402.AsError(found).Message); err != nil {
		e.Log.Warn("tell the owner of the ledger", "err", err)
	}
}
