package history

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"x402-wallet/x402/money"
)

// Filter selects payments for people and agents. Zero fields do not restrict.
type Filter struct {
	Limit  int    // at most this many; 0 means 10
	Before string // older than this payment (its id, or its transaction's)
	URL    string // part of the URL, whatever the case of its ASCII letters
	After  time.Time
	Until  time.Time // made before it
	State  State
}

// ErrNoCursor says that Filter.Before names no payment.
var ErrNoCursor = errors.New("no such payment to list before")

// List returns payments, newest first, whether there are more, and what all that match spent, by
// symbol; failed ones spent nothing.
//
// In a ledger of a million it takes milliseconds, because it hardly looks at payments that it does
// not return: those with a part of a URL come from an index of its trigrams, sums from those kept
// of symbols and places, and what has to be looked at is narrow (schema.sql).
func (s *Store) List(ctx context.Context, f Filter) (list []Payment, more bool,
	totals map[string]money.Dollars, err error) {
	if f.Limit <= 0 {
		f.Limit = 10
	}
	totals = map[string]money.Dollars{}
	err = s.view(ctx, func(t *Tx) error {
		q, err := t.search(f)
		if err != nil || q.nothing {
			return err
		}
		if list, err = q.page(); err != nil {
			return err
		}
		if more = len(list) > f.Limit; more || f.Before != "" {
			return q.total(totals)
		}
		for _, p := range list { // these are all
			if p.State != Failed && p.Price != 0 {
				totals[p.Symbol] = totals[p.Symbol].Add(p.Price)
			}
		}
		return nil
	})
	if more {
		list = list[:f.Limit]
	}
	return list, more, totals, err
}

// search is a Filter in the ledger's words.
type search struct {
	*Tx
	Filter
	state   string // the State as a condition
	part    string // the URL in small letters, as briefs have it
	grams   string // the URL for the index; "": it is too short for it, or asking it does not pay
	indexed int64  // the last payment in the index
	// no payment before this one is After. A later payment is never of an earlier time
	// (Tx.notBeforeLedger).
	first   int64
	before  int64
	nothing bool // there can be none
}

const (
	unfinished = `state IN ('reserved', 'submitted', 'unknown')`
	block      = 256   // as in schema.sql
	longest    = `512` // characters of a URL that is in the index, as in schema.sql
	// looking at a payment that the index of URLs names, than at the next one that failed
	dearer  = 8
	maxPart = 8 << 10 // of a URL that is looked for
)

func (t *Tx) search(f Filter) (*search, error) {
	q := &search{Tx: t, Filter: f, before: math.MaxInt64}
	switch {
	case f.State == "":
		q.state = `true`
	case f.State.Unfinished():
		q.state = `state = '` + string(f.State) + `' AND ` + unfinished
	case f.State == Settled, f.State == Failed:
		q.state = `state = '` + string(f.State) + `'`
	default:
		q.nothing = true
	}
	if f.URL != "" {
		q.part = lower(f.URL)
		q.nothing = q.nothing || len(f.URL) > maxPart || !utf8.ValidString(f.URL) ||
			strings.ContainsFunc(f.URL, unicode.IsControl)
	}
	var newest int64
	if err := t.row(`SELECT coalesce(max(seq), 0) FROM payments`).Scan(&newest); err != nil {
		return nil, err
	}
	q.indexed = newest / block * block
	if !f.Until.IsZero() {
		end, err := t.firstSince(f.Until)
		if err != nil {
			return nil, err
		}
		q.before = end
	}
	var err error
	if f.URL != "" && !f.State.Unfinished() && !q.nothing {
		if q.grams, err = t.grams(q.part, f.State, newest); err != nil {
			return nil, err
		}
	}
	if q.first, err = t.firstSince(f.After); err != nil || f.Before == "" {
		return q, err
	}
	var cursor int64
	err = t.row(`SELECT seq FROM payments WHERE id = ?1 UNION ALL SELECT seq FROM payments WHERE transaction_id = ?1 AND transaction_id <> '' LIMIT 1`, f.Before).Scan(&cursor)
	q.before = min(q.before, cursor)
	return q, none(err, ErrNoCursor)
}

func (t *Tx) firstSince(at time.Time) (seq int64, err error) {
	if at.IsZero() {
		return 0, nil
	}
	err = t.row(`SELECT seq FROM payments WHERE created_at >= ? ORDER BY created_at, seq LIMIT 1`,
		micros(at)).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return math.MaxInt64, nil
	}
	return seq, err
}

// grams is a query of the index for all that may contain a text: the rarest of its every three
// characters in a row, as a sample of the payments tells them. A step in a gram's list costs a
// tenth of looking at a payment, so asking for another gram pays unless its list is much the longer
// one. Beyond ASCII the index folds more than small letters do, so it is not asked there. Where few
// failed, it is not asked either.
func (t *Tx) grams(text string, state State, newest int64) (query string, err error) {
	const most, sampled, longer = 4, 100, 4
	type gram struct {
		text string
		seen int64
	}
	var list []gram
	for end := len(text); end >= 3; end-- {
		g := gram{text: text[end-3 : end]}
		if !strings.ContainsFunc(g.text, func(r rune) bool {
			return r > unicode.MaxASCII
		}) && !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	if len(list) == 0 {
		return "", nil
	}
	var failed int64
	// Spread by a large prime, and not at equal steps: payments may be numbered in their URLs.
	err = t.forEach(func(row scanner) error {
		var url string
		var one State
		err := row.Scan(&url, &one)
		for i := range list {
			if strings.Contains(url, list[i].text) {
				list[i].seen++
			}
		}
		if one == Failed {
			failed++
		}
		return err
	}, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		SELECT url, state FROM n JOIN briefs ON seq = i * 2147483647 % ?2 + 1`, min(sampled, newest), newest)
	if err != nil {
		return "", err
	}
	slices.SortStableFunc(list, func(a, b gram) int { return cmp.Compare(a.seen, b.seen) })
	rarest := max(list[0].seen, 1)
	if state == Failed && failed <= dearer*rarest {
		return "", nil
	}
	n := 1
	for n < min(most, len(list)) && list[n].seen <= longer*rarest {
		n++
	}
	for i, g := range list[:n] {
		if i > 0 {
			query += " AND "
		}
		query += `"` + strings.ReplaceAll(g.text, `"`, `""`) + `"`
	}
	return query, nil
}

// lower folds ASCII letters, as SQLite's does.
func lower(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, text)
}

// source is where some of the payments are found, as the end of a query.
type source struct {
	from  string // with WHERE, to which more conditions may be added
	args  []any
	order string
}

// sources are where all payments are found that have the part of a URL (index: urls, or rests) and
// come after from and before to: the first has newer ones than the others.
func (q *search) sources(index string, from, to int64) []source {
	table, url := "briefs", "url"
	switch {
	case q.State == Failed && q.grams == "":
		table += " INDEXED BY briefs_failed"
	case q.State.Unfinished():
		table, url = "payments INDEXED BY payments_unfinished", "lower(url)"
	}
	all := source{` FROM ` + table + ` WHERE seq >= ? AND seq < ?`, []any{from, to}, ` ORDER BY seq DESC`}
	if q.URL == "" {
		return []source{all}
	}
	has := ` AND instr(` + url + `, ?)`
	all.from, all.args = all.from+has, append(all.args, q.part)
	if q.grams == "" {
		return []source{all}
	}
	all.args[0] = max(from, q.indexed+1)
	long := source{` FROM briefs INDEXED BY briefs_long WHERE seq >= ? AND seq < ? AND length(url) > ` +
		longest + has, []any{from, min(to, q.indexed+1), q.part}, all.order}
	named := source{` FROM $ CROSS JOIN briefs ON seq = $.rowid WHERE $ MATCH ?`, []any{q.grams},
		` ORDER BY $.rowid DESC`}
	if from > 0 || to < math.MaxInt64 { // asking it of each takes a tenth of the time
		named.from, named.args = named.from+` AND $.rowid >= ? AND $.rowid < ?`, append(named.args, from, to)
	}
	named.from, named.args = strings.ReplaceAll(named.from, "$", index)+has, append(named.args, q.part)
	named.order = strings.ReplaceAll(named.order, "$", index)
	return []source{all, named, long}
}

// page is one payment more than the limit, where there are as many.
func (q *search) page() (list []Payment, err error) {
	sources := q.sources("urls", q.first, q.before)
	if list, err = q.newest(q.Limit+1, sources[:1]); err != nil || len(list) > q.Limit || len(sources) == 1 {
		return list, err
	}
	older, err := q.newest(q.Limit+1-len(list), sources[1:])
	return append(list, older...), err
}

// newest are the n newest payments of some sources.
func (q *search) newest(n int, sources []source) ([]Payment, error) {
	var found []string
	var args []any
	for _, s := range sources {
		found = append(found, `SELECT seq FROM (SELECT seq`+s.from+` AND `+q.state+s.order+` LIMIT ?)`)
		args = append(append(args, s.args...), n)
	}
	return collect(q.Tx, scanPayment, selectPayment+` WHERE seq IN (`+strings.Join(found, ` UNION ALL `)+
		`) ORDER BY seq DESC LIMIT ?`, append(args, n)...)
}

// total adds up what is selected, by symbol: what came since After, less what came since Until.
func (q *search) total(into map[string]money.Dollars) error {
	if q.Until.IsZero() {
		return q.totals(into)
	}
	later := *q
	if later.Until.After(later.After) {
		later.After = later.Until
	}
	var err error
	if later.first, err = q.firstSince(later.After); err != nil {
		return err
	}
	less := map[string]money.Dollars{}
	if err := q.totals(into); err != nil {
		return err
	}
	if err := later.totals(less); err != nil {
		return err
	}
	for symbol, sum := range less {
		if into[symbol] = into[symbol].SubFloor(sum); into[symbol] == 0 {
			delete(into, symbol)
		}
	}
	return nil
}

// totals adds up what came since After, by symbol.
func (q *search) totals(into map[string]money.Dollars) error {
	switch {
	case q.State == Failed:
		return nil
	case q.State.Unfinished():
		return q.each(into, "urls", q.first, math.MaxInt64, "")
	}
	everywhere := q.URL == ""
	if !everywhere {
		if err := q.row(`SELECT NOT EXISTS (SELECT 1 FROM totals WHERE scope = 'ever' AND NOT instr(`+place+
			`, ?))`, q.part).Scan(&everywhere); err != nil {
			return err
		}
	}
	if everywhere {
		q.URL = ""
		return q.byTime(into)
	}
	return q.byPlace(into)
}

// kept is which of the kept sums are meant.
func (q *search) kept() string {
	if q.State == Settled {
		return "sum(spent)"
	}
	return "sum(spent + held)"
}

const (
	day    = 24 * time.Hour
	place  = `lower(substr(key, instr(key, char(10)) + 1))`
	symbol = `substr(key, 1, instr(key, char(10)) - 1)`
)

// next is the first time from at on that is a multiple of unit, and the sums' number of it.
func next(at time.Time, unit time.Duration) (time.Time, int64) {
	whole := at.Add(unit - time.Microsecond).Truncate(unit)
	return whole, micros(whole) / unit.Microseconds()
}

// byTime adds the days from After on, of the first one the hours, of the first of these each
// payment.
func (q *search) byTime(into map[string]money.Dollars) error {
	var today int64
	if !q.After.IsZero() {
		hour, thisHour := next(q.After, time.Hour)
		_, today = next(q.After, day)
		last, err := q.firstSince(hour)
		if err != nil {
			return err
		}
		if err := q.each(into, "", q.first, last, ""); err != nil {
			return err
		}
		if err := q.sums(into, `SELECT key, `+q.kept()+
			` FROM totals WHERE scope = 'hour' AND day >= ? AND day < ? GROUP BY key`, thisHour,
			today*24); err != nil {
			return err
		}
	}
	return q.sums(into, `SELECT key, `+q.kept()+
		` FROM totals WHERE scope = 'symbol' AND day >= ? GROUP BY key`, today)
}

// byPlace adds the days from After on of the places that have the part of a URL in their name, each
// payment of the first day, and after that each one that has it behind its place's name.
func (q *search) byPlace(into map[string]money.Dollars) error {
	const named = `scope = 'ever' AND instr(` + place + `, ?)`
	midnight := q.first
	if q.After.IsZero() {
		if err := q.sums(into, `SELECT `+symbol+`, `+q.kept()+` FROM totals WHERE `+named+` GROUP BY 1`,
			q.part); err != nil {
			return err
		}
	} else {
		at, today := next(q.After, day)
		var err error
		if midnight, err = q.firstSince(at); err != nil {
			return err
		}
		if err := q.each(into, "urls", q.first, midnight, ""); err != nil {
			return err
		}
		if err := q.sums(into, `SELECT `+symbol+`, `+q.kept()+` FROM totals WHERE scope = 'place' AND day >= ?
			AND key IN (SELECT key FROM totals WHERE `+named+`) GROUP BY 1`, today, q.part); err != nil {
			return err
		}
	}
	index := "rests"
	for i, c := range q.part { // the part may begin in the name of a place and end behind it
		var across bool
		if i > 0 && strings.ContainsRune("/?#", c) {
			if err := q.row(`SELECT EXISTS (SELECT 1 FROM totals WHERE scope = 'ever' AND substr(`+place+
				`, -length(?1)) = ?1)`, q.part[:i]).Scan(&across); err != nil {
				return err
			}
		}
		if across {
			index = "urls"
		}
	}
	var anywhere bool
	if err := q.row(`SELECT EXISTS (SELECT 1 FROM totals WHERE `+named+`)`,
		q.part).Scan(&anywhere); err != nil {
		return err
	}
	if !anywhere {
		return q.each(into, index, midnight, math.MaxInt64, "")
	}
	return q.each(into, index, midnight, math.MaxInt64, ` AND instr(url, ?) + length(?) - 1 > ends`, q.part,
		q.part)
}

// each adds payments one by one, in a column for each symbol: GROUP BY would sort them.
func (q *search) each(into map[string]money.Dollars, index string, from, to int64, where string,
	args ...any) error {
	symbols, err := collect(q.Tx, scanText, `SELECT DISTINCT `+symbol+` FROM totals WHERE scope = 'ever'`)
	if err != nil || len(symbols) == 0 {
		return err
	}
	sums := make([]money.Dollars, len(symbols))
	var named, found []any
	for i := range sums {
		found = append(found, &sums[i])
	}
	columns := `coalesce(sum(usd), 0)`
	if len(symbols) > 1 { // comparing each with the only one would take a fifth of the time
		columns = strings.Repeat(`, coalesce(sum(usd) FILTER (WHERE symbol = ?), 0)`, len(symbols))[2:]
		for _, symbol := range symbols {
			named = append(named, symbol)
		}
	}
	for _, s := range q.sources(index, from, to) {
		all := slices.Concat(named, s.args, args)
		if err := q.slowRow(`SELECT `+columns+s.from+where+` AND `+q.state,
			all...).Scan(found...); err != nil {
			return err
		}
		for i, sum := range sums {
			if sum != 0 {
				into[symbols[i]] = into[symbols[i]].Add(sum)
			}
		}
	}
	return nil
}

func (t *Tx) sums(into map[string]money.Dollars, query string, args ...any) error {
	return t.forEach(func(row scanner) error {
		var symbol string
		var sum money.Dollars
		err := row.Scan(&symbol, &sum)
		if sum != 0 {
			into[symbol] = into[symbol].Add(sum)
		}
		return err
	}, query, args...)
}
