package history

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Verify compares the whole ledger with its audit chain, which holds together from its first row to
// its last: a changed, missing or reordered row of the chain, and every row and column of the other
// tables that is not what the chain says, is LEDGER_CORRUPT and named. at, where it is not zero, has
// to be on the chain. Exempt are who works on a payment and who waits for it (lease_owner, waiter),
// which say who may go on with a payment and nothing about money; and the index by which URLs are searched.
// It reads every table once.
func (s *Store) Verify(ctx context.Context, at Head) (rows int, err error) {
	return s.verify(ctx, Keyholder{After: at})
}

// VerifySealed is Verify by a holder of the key: every sealed row is this wallet's, and so are the sums
// and the memory, which are made again from what was signed. k.After has to be on the chain.
func (s *Store) VerifySealed(ctx context.Context, k Keyholder) (rows int, err error) {
	return s.verify(ctx, k)
}

// VerifyCopy is Verify for the rows of a copy that is not open as a ledger.
func VerifyCopy(d *sqldb.Tx) (rows int, err error) {
	return (&tx{Tx: d, known: &known{}, followed: &followed{}}).verify(Keyholder{}, nil)
}

type progressKey struct{}

// WithProgress has Verify and VerifySealed tell how many of how many rows of the audit chain they have
// compared, now and then.
func WithProgress(ctx context.Context, tell func(done, all int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}

// progressStep is how many rows are compared between two times that it is told.
const progressStep = 1 << 14

func (s *Store) verify(ctx context.Context, k Keyholder) (rows int, err error) {
	tell, _ := ctx.Value(progressKey{}).(func(done, all int64))
	return read(ctx, s, func(t *tx) (int, error) { return t.verify(k, tell) })
}

// verify reads the audit chain from its first row to its last, then each payment with what the chain tells of
// it, and then the small tables. tell may be nil.
func (t *tx) verify(k Keyholder, tell func(done, all int64)) (rows int, err error) {
	r, err := t.newReplay(k)
	if err != nil {
		return 0, err
	}
	return r.all(tell)
}

// all is verify with what it needs.
func (r *replay) all(tell func(done, all int64)) (rows int, err error) {
	for _, check := range []func() error{r.t.formAgrees, r.readRedates} {
		if err := check(); err != nil {
			return 0, err
		}
	}
	if rows, err = r.chain(tell); err != nil {
		return rows, err
	}
	for _, check := range []func() error{r.payments, r.t.sumsAgree, r.tables, r.sealedSums} {
		if err := check(); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// chain reads the audit chain and applies its rows.
func (r *replay) chain(tell func(done, all int64)) (rows int, err error) {
	head, err := scanNumber(r.t.Row(`SELECT coalesce(max(seq), 0) FROM audit`))
	if err != nil {
		return 0, err
	}
	err = r.t.walk(0, r.k.After, func(row auditRow) error {
		if tell != nil && rows%progressStep == 0 {
			tell(int64(rows), head)
		}
		rows++
		return r.apply(row)
	})
	if err == nil && !slices.Equal(r.redates, r.redated) {
		err = corrupt("what was redated in it is not what the audit chain says")
	}
	return rows, err
}

// formAgrees compares the tables, indexes and triggers with those of a new ledger, because a trigger could
// change what this wallet writes, and finds values that are not of their column's type.
func (t *tx) formAgrees() error {
	if err := t.FormIs(schema()); err != nil {
		if _, isKnown := errors.AsType[*x402.Error](err); isKnown {
			return err
		}
		return corrupt("%w", err)
	}
	return nil
}

// auditRow is a row of the audit chain.
type auditRow struct {
	seq, at       int64
	payment       int64 // its number; 0: none
	event, detail string
	hash, seal    []byte
}

// linked is the hash that the row has behind another hash.
func (r auditRow) linked(previous []byte) []byte {
	var payment [20]byte
	return link(previous, r.at, string(strconv.AppendInt(payment[:0], r.payment, 10)), r.event, r.detail)
}

// chain is the audit chain as far as it was read: it holds together, and may have a head on it.
type chain struct {
	last     int64 // row
	previous []byte
	at       Head
	met      bool // at is on it
}

// newChain begins behind a row.
func (t *tx) newChain(after int64, at Head) (*chain, error) {
	c := &chain{last: after, at: at, met: at.Seq <= after}
	err := t.Row(`SELECT hash FROM audit WHERE seq = ?`, after).Scan(&c.previous)
	return c, sqldb.Otherwise(err, nil)
}

// follow goes on to a row, which has to have the hash that is stored with it.
func (c *chain) follow(r *auditRow, stored string) error {
	r.hash = r.linked(c.previous)
	if r.seq != c.last+1 || string(r.hash) != stored {
		return corrupt("the audit chain breaks at row %d (%s of payment %d)", r.seq, r.event, r.payment)
	}
	if r.seq == c.at.Seq && bytes.Equal(r.hash, c.at.Hash) {
		c.met = true
	}
	c.previous, c.last = r.hash, r.seq
	return nil
}

func (c *chain) end() error {
	if !c.met {
		return corrupt("the audit chain is not the one this wallet marked: its row %d is another one",
			c.at.Seq)
	}
	return nil
}

// walk reads the audit chain behind a row, and checks that it holds together and has a head on it.
func (t *tx) walk(after int64, at Head, each func(auditRow) error) error {
	return t.walkTo(after, math.MaxInt64, at, each)
}

func (t *tx) walkTo(after, upTo int64, at Head, each func(auditRow) error) error {
	c, err := t.newChain(after, at)
	if err != nil {
		return err
	}
	err = t.Each(func(row sqldb.Row) error {
		var r auditRow
		if err := row.Scan(&r.seq, &r.at, &r.payment, &r.event, &r.detail, &r.hash, &r.seal); err != nil {
			return err
		}
		if err := c.follow(&r, string(r.hash)); err != nil {
			return err
		}
		return each(r)
	}, `SELECT seq, at, payment, event, detail, hash, seal FROM audit
		WHERE seq > ? AND seq <= ? ORDER BY seq`, after, upTo)
	if err != nil {
		return err
	}
	return c.end()
}

// sumsAgree compares the sums that are kept with those of the payments.
func (t *tx) sumsAgree() error {
	const compare = countedPayments + `, again AS (` + totalsOfPayments + `),
		kept AS (SELECT scope, key, day, spent, held FROM totals)
		SELECT (SELECT count(*) FROM (SELECT * FROM again EXCEPT SELECT * FROM kept) AS lost) +
			(SELECT count(*) FROM (SELECT * FROM kept EXCEPT SELECT * FROM again) AS more
				WHERE spent <> 0 OR held <> 0)`
	different, err := scanNumber(t.Row(compare))
	if err == nil && different > 0 {
		err = x402.Errorf(x402.LedgerCorrupt, "%d sums are not those of the payments", different)
	}
	return err
}

// scanCells reads a row of a key and n columns more, as texts: of bytes the digest.
func scanCells(row sqldb.Row, n int) (key, text string, err error) {
	cells := make([]any, n)
	into := []any{&key}
	for i := range cells {
		into = append(into, &cells[i])
	}
	if err := row.Scan(into...); err != nil {
		return "", "", err
	}
	for i, c := range cells {
		if b, ok := c.([]byte); ok {
			cells[i] = digestOf(b)
		}
	}
	return key, toJSON(cells), nil
}

// scanDigest reads a row of a key, a number and n texts or bytes: the digest is over all but the key.
func scanDigest(row sqldb.Row, n int) (key, digest string, err error) {
	var number int64
	texts := make([]string, n)
	into := []any{&key, &number}
	for i := range texts {
		into = append(into, &texts[i])
	}
	err = row.Scan(into...)
	return key, encodeDigest(link(nil, number, texts...)), err
}

// tableAgrees compares a table with what its rows have to be, by their keys.
func (t *tx) tableAgrees(table string, want map[string]string, n int, query string) error {
	err := t.Each(func(row sqldb.Row) error {
		key, got, err := scanCells(row, n)
		if err != nil {
			return err
		}
		if is, known := want[key]; !known || is != got {
			return corrupt("the row %q of %s is not what the audit chain says", key, table)
		}
		delete(want, key)
		return nil
	}, query)
	if err != nil {
		return err
	}
	for key := range want {
		return corrupt("the row %q of %s is gone", key, table)
	}
	return nil
}
