// Package verify compares a whole ledger with its audit chain. No signature needs it: package history checks
// what one believes.
//
// What must stay true: a changed, missing or reordered row of the chain, and every row and column of the
// other tables that is not as the chain says, is LEDGER_CORRUPT and named. Exempt are who works on a payment
// and who waits for it (lease_owner, waiter), which say who may go on with a payment and nothing about money;
// what the owner is told (alerts, turns); and the index by which URLs are searched.
//
// The files: replay.go makes the small tables again from the chain, tables.go compares them. sealed.go is
// about what was signed, payments.go and stored.go are about payments, form.go is about how tables are made.
// content.go compares the bytes that were bought, sample.go a part of a ledger, owner.go the owner's seals.
package verify

import (
	"context"
	"math"
	"slices"

	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// Ledger compares a ledger with its audit chain, and returns how many rows that has. at, unless it is zero,
// has to be on the chain. It reads every table once.
func Ledger(ctx context.Context, s *history.Store, at history.Head) (rows int, err error) {
	return Sealed(ctx, s, history.Keyholder{After: at})
}

// Sealed is Ledger by a holder of the key: every sealed row is this wallet's, and so are the sums and the
// memory, which are made again from what was signed. k.After has to be on the chain.
func Sealed(ctx context.Context, s *history.Store, k history.Keyholder) (rows int, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		r := newReplay(t, k)
		r.tell, _ = ctx.Value(progressKey{}).(func(done, all int64))
		rows, err = r.run()
		return err
	})
	return rows, err
}

// Tx is Ledger in a transaction, which may be making the ledger.
func Tx(t *sqldb.Tx) (rows int, err error) { return newReplay(t, history.Keyholder{}).run() }

type progressKey struct{}

// WithProgress has Ledger and Sealed tell now and then how many rows of the audit chain they have compared,
// and how many it has.
func WithProgress(ctx context.Context, tell func(done, all int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}

// progressStep is how many rows are compared between two times that it is told.
const progressStep = 1 << 14

// run reads the audit chain from its first row to its last, then each payment with what the chain tells of
// it, and then the small tables.
func (r *replay) run() (rows int, err error) {
	if err := r.begin(); err != nil {
		return 0, err
	}
	if rows, err = r.chain(); err != nil {
		return rows, err
	}
	for _, check := range []func() error{r.payments, r.totals, r.tables, r.sealedSums} {
		if err := check(); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// chain reads the audit chain and applies its rows.
func (r *replay) chain() (rows int, err error) {
	last, err := sqldb.ScanNumber(r.t.Row(`SELECT coalesce(max(seq), 0) FROM audit`))
	if err != nil {
		return 0, err
	}
	at := audit.Mark{Seq: r.k.After.Seq, Hash: r.k.After.Hash}
	err = audit.Walk(r.t, 0, math.MaxInt64, at, func(row audit.Row) error {
		if r.tell != nil && rows%progressStep == 0 {
			r.tell(int64(rows), last)
		}
		rows++
		return r.apply(row)
	})
	if err == nil && !slices.Equal(r.redates, r.redated) {
		err = audit.Corrupt("what was redated in it is not what the audit chain says")
	}
	return rows, err
}
