package verify

import (
	"context"
	"encoding/json"
	"math/rand/v2"

	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// Sampled is what a look at a part of the ledger has compared.
type Sampled struct {
	Rows, AllRows         int64 // of the audit chain
	Payments, AllPayments int64
}

// Whole reports whether that was all there is.
func (s Sampled) Whole() bool { return s.Rows == s.AllRows && s.Payments == s.AllPayments }

// What Sample looks at: the newest rows, which a person has most to lose by, and stretches of what is older.
const (
	newestSampled  = 5_000 // rows of the chain
	newestPayments = 1_000
	stretches      = 32
	stretchRows    = 150
	stretchOf      = 30 // payments
	// sampledWhole is up to how many rows of the chain all of it is compared instead
	sampledWhole = 20_000
)

// Sample is Ledger for somebody who waits: of a long ledger it compares the newest stretch and, at random,
// stretches of what is older. Of each the chain holds together, and its payments, with all of their
// columns, are what the chain says; the newest seal is over the sums that are kept, and the tables' own
// form is as this wallet makes it. So it finds a ledger that was replaced or edited at large, and one
// edited row only by luck: that is what Ledger is for.
func Sample(ctx context.Context, s *history.Store) (done Sampled, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		done, err = sample(t, sampledWhole)
		return err
	})
	return done, err
}

// sample compares all of a ledger whose chain has at most whole rows.
func sample(t *sqldb.Tx, whole int64) (done Sampled, err error) {
	err = t.Row(`SELECT (SELECT coalesce(max(seq), 0) FROM audit), (SELECT coalesce(max(seq), 0) FROM payments)`).
		Scan(&done.AllRows, &done.AllPayments)
	if err != nil {
		return done, err
	}
	if done.AllRows <= whole {
		rows, err := Tx(t)
		done.Rows, done.AllRows, done.Payments = int64(rows), int64(rows), done.AllPayments
		return done, err
	}
	r := newReplay(t, history.Keyholder{})
	if err := r.begin(); err != nil {
		return done, err
	}
	if err := newestSeal(t); err != nil {
		return done, err
	}
	err = inStretches(done.AllRows, newestSampled, stretchRows, func(first, last int64) error {
		done.Rows += last - first + 1
		return stretch(t, first, last)
	})
	if err != nil {
		return done, err
	}
	return done, inStretches(done.AllPayments, newestPayments, stretchOf, func(first, last int64) error {
		done.Payments += last - first + 1
		p, err := r.readPage(first, last)
		if err != nil {
			return err
		}
		return r.comparePage(p)
	})
}

// inStretches calls f with the newest of so many numbers, and with stretches of the others: one at a random
// place in each of the equal parts into which these fall.
func inStretches(all, newest, length int64, f func(first, last int64) error) error {
	older := max(0, all-newest)
	if all > 0 {
		if err := f(older+1, all); err != nil {
			return err
		}
	}
	part := older / stretches
	for i := int64(0); i < stretches && part > 0; i++ {
		first := i*part + 1 + rand.Int64N(max(1, part-length+1)) //nolint:gosec // no secret
		if err := f(first, min(first+length-1, (i+1)*part)); err != nil {
			return err
		}
	}
	return nil
}

// stretch checks that a part of the chain holds together, and with the row before it.
func stretch(t *sqldb.Tx, first, last int64) error {
	n := int64(0)
	err := audit.Walk(t, first-1, last, audit.Mark{}, func(audit.Row) error { n++; return nil })
	if err == nil && n != last-first+1 {
		err = audit.Corrupt("the audit chain ends at row %d, and not at %d", first+n-1, last)
	}
	return err
}

// newestSeal compares the sums that are kept with the newest row that was sealed.
func newestSeal(t *sqldb.Tx) error {
	var detail, sums string
	err := t.Row(`SELECT a.detail, s.sums FROM audit a, sealed_sums s WHERE a.seal IS NOT NULL
		ORDER BY a.seq DESC LIMIT 1`).Scan(&detail, &sums)
	if err != nil {
		return sqldb.Otherwise(err, nil) // nothing was signed yet
	}
	var d struct{ Sums string }
	if json.Unmarshal([]byte(detail), &d) != nil || d.Sums != audit.Digest([]byte(sums)) {
		return audit.Corrupt("the sealed sums are not those of the newest sealed event")
	}
	return nil
}
