package history

import (
	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// OfSubscription is the condition for the payments of a subscription's slots that did not fail, and its
// arguments.
func OfSubscription(id string) (where string, args []any) {
	from, to := budget.SubscriptionKeys(id)
	return ` WHERE idempotency_key >= ? AND idempotency_key < ? AND state <> 'failed'`, []any{from, to}
}

// subscriptionUse is what the last sealed row says of a subscription, and what is held for it and not yet
// signed. Without the key it is believed, as all of the ledger is until something is signed.
func (t *tx) subscriptionUse(id string) (use budget.SubscriptionUse, err error) {
	state, err := sqldb.ScanText(t.Row(`SELECT sums FROM sealed_sums`))
	if err := sqldb.Otherwise(err, nil); err != nil {
		return use, err
	}
	if state != "" {
		known, err := decodeSums(state)
		if err != nil {
			return use, sqldb.Damaged("read the sealed sums", err)
		}
		use = known.Subscription(id)
	}
	where, args := OfSubscription(id)
	var waiting money.Dollars
	err = t.Row(`SELECT coalesce(sum(usd), 0) FROM payments`+where+` AND state = 'reserved'`, args...).Scan(&waiting)
	use.Held = use.Held.Add(waiting)
	return use, err
}
