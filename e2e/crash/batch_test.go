//go:build crash && linux

package crash

import (
	"context"
	"errors"

	"x402-wallet/e2e/schemes"
	"x402-wallet/history"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/money"
)

// Calls that are paid out of a deposit (batch-settlement). Judged by the chain, by what the seller counted
// and by every voucher that was shown to it.

// batch is the path of all scenarios of this kind.
const batch = "/batch"

// deposited: another call was paid for, and made the deposit.
func deposited(r *run) error {
	return r.before(func(p *process) error {
		a, err := p.pay(r.call("?before=1"))
		if err == nil && a.Status != "paid" {
			err = errors.New(a.String())
		}
		r.answers = append(r.answers, a)
		r.others++
		return errors.Join(err, p.end())
	})
}

// promised: one deposit, and for each purchase one price is promised. As in bounded, an answer that the
// client has read ends a purchase.
func (r *run) promised(who string) {
	price := schemes.Price(batch)
	if n := len(r.Settlements()); n > 1 {
		r.violation("%s: deposited %d times", who, n)
	}
	list := r.Channels()
	if len(list) > 1 {
		r.violation("%s: %d channels with one seller", who, len(list))
	}
	for _, c := range list {
		if allowed := uint64(r.purchases()) * price; c.Claimable > allowed {
			r.violation("%s: the seller can claim %d, %d allowed", who, c.Claimable, allowed)
		}
		if c.Ahead > price {
			r.violation("%s: a voucher was %d above what was charged when it was shown", who, c.Ahead)
		}
	}
}

// channel is the judgement of a payment out of a deposit.
func (r *run) channel() {
	r.payment()
	list := r.Channels()
	if len(list) != 1 || len(r.Settlements()) != 1 {
		r.violation("%d channels and %d deposits, not one of each", len(list), len(r.Settlements()))
		return
	}
	price, c, deposit := schemes.Price(batch), list[0], r.Settlements()[0].Amount
	paid := map[string]bool{}
	for _, a := range r.answers {
		if a.paid() {
			paid[a.PaymentID] = true
		}
	}
	if want := uint64(len(paid)) * price; c.Charged != want || c.Claimable != want {
		r.violation("%d calls were paid for, of %d each: the seller has charged %d and can claim %d",
			len(paid), price, c.Charged, c.Claimable)
	}
	if at := r.Balance(c.Payer); c.Balance != deposit || at != sandbox.USDC-deposit {
		r.violation("%d was deposited: %d is in the channel, %d at the wallet", deposit, c.Balance, at)
	}
	r.keptBook(c, deposit)
}

// keptBook holds the wallet's book of its one channel against the world's.
func (r *run) keptBook(c schemes.Channel, deposit uint64) {
	ctx := context.Background()
	store, err := r.open(ctx, history.Options{})
	if err != nil {
		r.violation("the ledger: %v", err)
		return
	}
	defer store.Close()
	rows, err := store.BatchChannels(ctx)
	if err != nil || len(rows) != 1 {
		r.violation("the ledger has %d channels: %v", len(rows), err)
		return
	}
	row := rows[0]
	_, book, err := row.Batch()
	if err != nil || row.ID != c.ID || book.Deposit != nil || len(book.Vouchers) > 0 || book.Stopped != "" ||
		book.Holds() != money.NewAmount(deposit) || row.Claimed != money.NewAmount(c.Charged) ||
		row.Amount != money.NewAmount(c.Claimable) {
		r.violation("the ledger's channel is %+v, with %+v; the seller's is %+v: %v", row, book, c, err)
	}
}
