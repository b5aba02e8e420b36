package history

import (
	"strings"

	"x402-wallet/x402/money"
)

// The history that people and agents search, in a fleet's ledger: by an index of trigrams where its server
// has that extension, else by a look at each payment. What matches is added up from the payments, and only up
// to mostSummed of them: a sum over a million takes more than a second.

// mostSummed is how many payments a search adds up.
const mostSummed = 10_000

// fleetIndex makes the index of trigrams where the server has the extension and its owner may have it.
const fleetIndex = `DO $$ BEGIN
	IF EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'pg_trgm') THEN
		CREATE EXTENSION IF NOT EXISTS pg_trgm;
		CREATE INDEX payments_by_url ON x402.payments USING gin (lower(url COLLATE "C") gin_trgm_ops);
	END IF;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; -- it is in another schema, or not for us
END $$;`

// fleetSearch is a Filter in PostgreSQL's words.
type fleetSearch struct {
	*tx
	Filter
	where  string
	args   []any
	before int64 // the place of the payment that those of the page are older than; 0: of any
	empty  bool  // there can be none
}

func (t *tx) fleetSearch(f Filter) (q *fleetSearch, err error) {
	q = &fleetSearch{tx: t, Filter: f}
	q.where, q.empty = f.state()
	add := func(condition string, value any) {
		q.where, q.args = q.where+` AND `+condition, append(q.args, value)
	}
	if f.URL != "" {
		add(t.lower("url")+` LIKE ?`, `%`+likeText.Replace(lower(f.URL))+`%`)
	}
	if len(f.Agents) > 0 {
		whose, names := oneOf("agent", f.Agents)
		q.where, q.args = q.where+` AND `+whose, append(q.args, names...)
	}
	if !f.After.IsZero() {
		add(`created_at >= ?`, micros(f.After))
	}
	if !f.Until.IsZero() {
		add(`created_at < ?`, micros(f.Until))
	}
	if f.Before != "" {
		q.before, err = t.seqNamed(f.Before)
	}
	return q, err
}

// likeText makes a text a pattern of itself.
var likeText = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// page is one payment more than the limit, where there are as many.
func (q *fleetSearch) page() ([]Payment, error) {
	where, args := q.where, q.args
	if q.before > 0 {
		where, args = where+` AND seq < ?`, append(args[:len(args):len(args)], q.before)
	}
	return collect(q.tx, scanPayment, selectPayment+` WHERE `+where+` ORDER BY seq DESC LIMIT ?`,
		append(args[:len(args):len(args)], q.Limit+1)...)
}

// each adds up what matches by some columns; false: there is too much of it.
func (q *fleetSearch) each(columns string, add func(row scanner) (n int64, err error)) (all bool, err error) {
	n := int64(0)
	err = q.forEach(func(row scanner) error {
		some, err := add(row)
		n += some
		return err
	}, `SELECT `+columns+`, coalesce(sum(usd - returned) FILTER (WHERE state <> 'failed'), 0), count(*)
		FROM (SELECT * FROM payments WHERE `+q.where+` LIMIT ?) AS found GROUP BY `+columns,
		append(q.args[:len(q.args):len(q.args)], mostSummed+1)...)
	return n <= mostSummed, err
}

func (t *tx) fleetList(f Filter) (list []Payment, more bool, totals map[string]money.Dollars, err error) {
	totals = map[string]money.Dollars{}
	q, err := t.fleetSearch(f)
	if err != nil || q.empty {
		return nil, false, totals, err
	}
	list, err = q.page()
	if err != nil {
		return nil, false, totals, err
	}
	all, err := q.each(`symbol`, func(row scanner) (n int64, err error) {
		var symbol string
		var sum money.Dollars
		err = row.Scan(&symbol, &sum, &n)
		if sum != 0 {
			totals[symbol] = sum
		}
		return n, err
	})
	if !all {
		totals = nil
	}
	return list, len(list) > f.Limit, totals, err
}

// fleetSellers are the Parts.
func (t *tx) fleetSellers(f Filter, most int) (p Parts, err error) {
	q, err := t.fleetSearch(f)
	if err != nil || q.empty || f.State == Failed {
		return p, err
	}
	sellers, networks := map[string]money.Dollars{}, map[string]money.Dollars{}
	all, err := q.each(`host, network`, func(row scanner) (n int64, err error) {
		var seller, network string
		var sum money.Dollars
		err = row.Scan(&seller, &network, &sum, &n)
		if sum != 0 {
			sellers[seller] = sellers[seller].Add(sum)
			networks[network] = networks[network].Add(sum)
		}
		return n, err
	})
	if err != nil || !all {
		return Parts{TooMany: !all}, err
	}
	p.Sellers, p.Others = dearest(sellers, most)
	p.Networks, _ = dearest(networks, most)
	return p, nil
}
