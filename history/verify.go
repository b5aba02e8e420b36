package history

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"x402-wallet/x402"
)

// Verify compares the whole ledger with its audit chain, which holds together from its first row to
// its last: a changed, missing or reordered row of the chain, and every row and column of the other
// tables that is not what the chain says, is LEDGER_CORRUPT and named. at, where it is not zero, has
// to be on the chain. Exempt are who works on a payment and who waits for it (lease_owner, waiter),
// which say who may go on with a payment and nothing about money; what was sold (sales: the paywall's
// own book); and the index by which URLs are searched. It reads every table once.
func (s *Store) Verify(ctx context.Context, at Head) (rows int, err error) {
	if s.fleet != nil {
		return read(ctx, s, func(t *tx) (int, error) { return t.verifyFleet(at) })
	}
	return s.verify(ctx, Keyholder{After: at})
}

// VerifySealed is Verify by a holder of the key: every sealed row is this wallet's, and so are the sums
// and the memory, which are made again from what was signed. k.After has to be on the chain.
func (s *Store) VerifySealed(ctx context.Context, k Keyholder) (rows int, err error) {
	if s.fleet != nil { // nothing is sealed in it but the owner's rules
		return s.Verify(ctx, k.After)
	}
	return s.verify(ctx, k)
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
	err = s.viewBeside(ctx, longTables, func(t *tx) (err error) {
		rows, err = t.verify(k)
		return err
	})
	return rows, err
}

func (t *tx) verify(k Keyholder) (rows int, err error) {
	r, err := t.newReplay(k)
	if err != nil {
		return 0, err
	}
	for _, check := range []func() error{t.schemaAgrees, t.typesAgree, r.readRedates} {
		if err := check(); err != nil {
			return 0, err
		}
	}
	rows, err = r.stories()
	if err != nil {
		return rows, err
	}
	for _, check := range []func() error{r.tables, r.sealedSums} {
		if err := check(); err != nil {
			return rows, err
		}
	}
	return rows, nil
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
	err := t.row(`SELECT hash FROM audit WHERE seq = ?`, after).Scan(&c.previous)
	return c, none(err, nil)
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

const auditKinds = "#iittbB" // of its columns: see isOfKind

// auditRows begins to read the audit chain, as far as it holds together; io.EOF: it has no more rows.
func (t *tx) auditRows(c *chain) (next func() (auditRow, error), err error) {
	rows, err := t.openTree("audit", auditKinds, math.MinInt64)
	return func() (r auditRow, err error) {
		if err := rows.next(); err != nil {
			return r, err
		}
		v := &rows.row
		r = auditRow{seq: v.number, at: v.int(1), payment: v.int(2), event: v.text(3), detail: v.text(4)}
		if !v.isNull(6) {
			r.seal = []byte(v.text(6))
		}
		return r, c.follow(&r, v.text(5))
	}, err
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
	err = t.forEach(func(row scanner) error {
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

// paymentSums is the head of a query that adds the payments up again, each of the ways.
const paymentSums = `WITH each AS MATERIALIZED (SELECT session, host, agent, network, symbol,
		symbol || char(10) || substr(url, 1, prefix_length) AS prefix, created_at / 3600000000 AS hour,
		sum((state = 'settled') * (usd - returned)) AS spent,
		sum((state NOT IN ('settled', 'failed')) * (usd - returned)) AS held
		FROM payments GROUP BY 1, 2, 3, 4, 5, 6, 7),
	sums AS (SELECT scope, key, day, sum(spent), sum(held) FROM (
		SELECT 'all' AS scope, '' AS key, hour / 24 AS day, spent, held FROM each UNION ALL
		SELECT 'session', session, hour / 24, spent, held FROM each UNION ALL
		SELECT 'host', host, hour / 24, spent, held FROM each UNION ALL
		SELECT 'agent', agent, hour / 24, spent, held FROM each WHERE agent <> '' UNION ALL
		SELECT 'agent symbol', agent || char(10) || symbol, hour / 24, spent, held FROM each
			WHERE agent <> '' UNION ALL
		SELECT 'network', network, hour / 24, spent, held FROM each UNION ALL
		SELECT 'symbol', symbol, hour / 24, spent, held FROM each UNION ALL
		SELECT 'hour', symbol, hour, spent, held FROM each UNION ALL
		SELECT 'prefix', prefix, hour / 24, spent, held FROM each UNION ALL
		SELECT 'prefix ever', prefix, 0, spent, held FROM each)
	GROUP BY 1, 2, 3)`

// sumsAgree compares what is kept with that.
func (t *tx) sumsAgree() error {
	const again = paymentSums +
		` SELECT count(*) FROM (SELECT * FROM (SELECT * FROM sums EXCEPT SELECT * FROM totals) UNION ALL
		SELECT * FROM (SELECT * FROM totals EXCEPT SELECT * FROM sums))`
	var different int
	if err := t.slowRow(again).Scan(&different); err != nil {
		return err
	}
	if different > 0 {
		return x402.Errorf(x402.LedgerCorrupt, "%d sums are not those of the payments", different)
	}
	return nil
}

// schemaAgrees compares the tables, indexes and triggers with those of a new ledger: a trigger could
// change what this wallet writes.
func (t *tx) schemaAgrees() error {
	want, err := newSchema()
	if err != nil {
		return ledgerError("make a ledger's tables", err)
	}
	return t.tableAgrees("the schema", maps.Clone(want), 2, listSchema)
}

const listSchema = `SELECT type || ' ' || name, tbl_name, coalesce(sql, '') FROM sqlite_schema
	WHERE name NOT LIKE 'sqlite_stat%' ORDER BY 1`

// newSchema is what SQLite makes of schema.sql.
var newSchema = sync.OnceValues(func() (map[string]string, error) {
	fresh, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer fresh.Close()
	fresh.SetMaxOpenConns(1)
	if _, err := fresh.Exec(schema()); err != nil {
		return nil, err
	}
	rows, err := fresh.Query(listSchema)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := map[string]string{}
	for rows.Next() {
		key, text, err := scanCells(rows, 2)
		if err != nil {
			return nil, err
		}
		list[key] = text
	}
	return list, rows.Err()
})

// typesAgree finds values that are not of their column's type: SQLite takes any, and compares a text
// and the same bytes as two. Where bytes may be missing they are NULL, and never empty. The long tables
// are looked at where they are read (cursor.go).
func (t *tx) typesAgree() error {
	type column struct {
		table, name, kind string
		required          bool
	}
	columns, err := collect(t, func(row scanner) (c column, err error) {
		err = row.Scan(&c.table, &c.name, &c.kind, &c.required)
		return c, err
	}, `SELECT m.name, c.name, replace(lower(c.type), 'bigint', 'integer'), c."notnull"
		FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'url%' AND m.name NOT LIKE 'sqlite_%'
			AND m.name NOT IN ('audit', 'payments', 'payment_search', 'contents', 'bodies') ORDER BY 1, c.cid`)
	if err != nil {
		return err
	}
	wrong := map[string][]string{}
	for _, c := range columns {
		wrong[c.table] = append(wrong[c.table],
			fmt.Sprintf(`typeof("%s") NOT IN ('%s', 'null')`, c.name, c.kind))
		if c.kind == "blob" && !c.required {
			wrong[c.table] = append(wrong[c.table], fmt.Sprintf(`"%s" = X''`, c.name))
		}
	}
	for _, table := range slices.Sorted(maps.Keys(wrong)) {
		var n int
		err := t.slowRow(`SELECT count(*) FROM "` + table + `" WHERE ` + strings.Join(wrong[table], " OR ")).
			Scan(&n)
		if err != nil {
			return err
		}
		if n > 0 {
			return corrupt("%d rows of %s hold values of another type", n, table)
		}
	}
	return nil
}

// scanCells reads a row of a key and n columns more, as texts: of bytes the digest.
func scanCells(row scanner, n int) (key, text string, err error) {
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
func scanDigest(row scanner, n int) (key, digest string, err error) {
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
	err := t.forEach(func(row scanner) error {
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
