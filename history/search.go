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

// The history that people and agents search: at most 5 ms in a ledger of a million payments
// (BenchmarkMillion), which a look at each payment would take half a second for. What that
// needs, and what goes without it, measured by BenchmarkMillion with that part taken out:
//
//   - url_fts, an index of trigrams, finds the payments with a part of a URL. It is asked for the
//     rarest of the part's trigrams, by a sample of payments. With the first four instead, the
//     searches for what is behind the host took 2.5 times the processor's time; with all, up to 15
//     times.
//   - payment_search has of each payment only what it is found by and adds to a sum. A payment with
//     its signed bytes fills a page of the disk, of these rows there are some fifty on one.
//   - totals has the sums per URL prefix (host and first word of the path, urlPrefix) and day, and per
//     symbol and day or hour. A part of a URL that is in a prefix takes that prefix's sums; only what
//     matches behind the prefix is added one by one, and url_suffix_fts finds it. Added one by one,
//     10,000 payments take about 5 ms, and a day of a million a month (33,000) more. An agent's payments
//     have sums per symbol and day; those of a part of a URL are added one by one.
//
// The sums are always exact, and Verify compares what is kept with the payments. A PostgreSQL
// engine will search otherwise (a GIN index of trigrams), so that nothing but this file, verify.go
// and schema.sql knows of these tables.

// Filter selects payments for people and agents. Zero fields do not restrict.
type Filter struct {
	Limit  int    // at most this many; 0 means 10
	Before string // older than this payment (its id, or its transaction's)
	URL    string // part of the URL, whatever the case of its ASCII letters
	After  time.Time
	Until  time.Time // made before it
	State  State
	Agents []string // whose they are, of those that share the wallet; nil: anybody's
}

// oneOf is the condition that a column is one of some texts, with its values.
func oneOf(column string, list []string) (condition string, args []any) {
	if len(list) == 0 {
		return `false`, nil
	}
	for _, text := range list {
		args = append(args, text)
	}
	return column + ` IN (` + strings.Repeat(`, ?`, len(list))[2:] + `)`, args
}

// List returns payments, newest first, whether there are more, and what all that match spent, by symbol;
// failed ones spent nothing. In a fleet totals is nil where more match than are added up (mostSummed).
// ErrNotFound where f.Before names no payment.
func (s *Store) List(ctx context.Context, f Filter) (list []Payment, more bool,
	totals map[string]money.Dollars, err error) {
	if f.Limit <= 0 {
		f.Limit = 10
	}
	totals = map[string]money.Dollars{}
	err = s.view(ctx, func(t *tx) error {
		if t.fleet != nil {
			list, more, totals, err = t.fleetList(f)
			return err
		}
		q, err := t.search(f)
		if err != nil || q.empty {
			return err
		}
		if list, err = q.page(); err != nil {
			return err
		}
		more = len(list) > f.Limit
		if more || f.Before != "" {
			return q.total(totals)
		}
		for _, p := range list { // these are all
			if p.State != Failed && p.Worth() != 0 {
				totals[p.Symbol] = totals[p.Symbol].Add(p.Worth())
			}
		}
		return nil
	})
	if more {
		list = list[:f.Limit]
	}
	delete(totals, "") // of sign-ins, which are in no token
	return list, more, totals, err
}

// search is a Filter in the ledger's words.
type search struct {
	*tx
	Filter
	state   string // the State as a condition
	part    string // the URL in small letters, as payment_search has it
	grams   string // the URL for url_fts; "": it is too short for it, or asking it does not pay
	indexed int64  // the last payment in url_fts
	// the first payment that is After: a later payment is never of an earlier time (tx.notBeforeLedger)
	from  int64
	to    int64 // the first one that is not Until any more, or Before
	empty bool  // there can be none
}

const (
	blockSize  = 256     // as in schema.sql
	maxIndexed = `512`   // characters of a URL that is in url_fts, as in schema.sql
	maxPart    = 8 << 10 // of a URL that is looked for: SQLite takes no very long pattern
)

func (t *tx) search(f Filter) (*search, error) {
	q := &search{tx: t, Filter: f, part: lower(f.URL), to: math.MaxInt64}
	q.state, q.empty = f.state()
	var newest int64
	err := t.row(`SELECT coalesce(max(seq), 0) FROM payments`).Scan(&newest)
	if err != nil {
		return nil, err
	}
	q.indexed = newest / blockSize * blockSize
	if f.URL != "" && !f.State.Unfinished() && !q.empty {
		q.grams, err = t.grams(q.part, f.State, newest)
		if err != nil {
			return nil, err
		}
	}
	q.from, err = t.firstSince(f.After)
	if err != nil {
		return nil, err
	}
	if !f.Until.IsZero() {
		q.to, err = t.firstSince(f.Until)
		if err != nil {
			return nil, err
		}
	}
	if f.Before != "" {
		var cursor int64
		cursor, err = t.seqNamed(f.Before)
		q.to = min(q.to, cursor)
	}
	return q, err
}

// state is the State as a condition, and whether there can be no payment that the filter selects.
func (f Filter) state() (condition string, empty bool) {
	switch {
	case f.State == "":
		condition = `true`
	case f.State.Unfinished():
		condition = `state = '` + string(f.State) + `' AND ` + unfinished
	case f.State == Settled, f.State == Failed:
		condition = `state = '` + string(f.State) + `'`
	default:
		empty = true
	}
	nobodys := f.Agents != nil && len(f.Agents) == 0
	if nobodys || len(f.URL) > maxPart || !utf8.ValidString(f.URL) ||
		strings.ContainsFunc(f.URL, unicode.IsControl) {
		empty = true
	}
	return condition, empty
}

// seqNamed is the place of a payment by its id, or its transaction's; of several in one the newest's.
func (t *tx) seqNamed(name string) (seq int64, err error) {
	err = t.row(`SELECT seq FROM (SELECT seq FROM payments WHERE id = ?1 UNION ALL
		SELECT max(seq) FROM payments WHERE substr(transaction_id, 1, 20) = substr(?1, 1, 20)
			AND transaction_id = ?1 AND transaction_id <> '') AS named WHERE seq IS NOT NULL LIMIT 1`, name).
		Scan(&seq)
	return seq, none(err, errNoPayment)
}

// firstSince is the first payment made at a time or later; where there is none, one that comes after all.
func (t *tx) firstSince(at time.Time) (seq int64, err error) {
	if at.IsZero() {
		return 0, nil
	}
	query := `SELECT seq FROM payments WHERE created_at >= ? ORDER BY created_at, seq LIMIT 1`
	if t.fleet != nil { // where a later one may have been made before
		query = `SELECT min(seq) FROM payments WHERE created_at >= ? HAVING min(seq) > 0`
	}
	err = t.row(query, micros(at)).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return math.MaxInt64, nil
	}
	return seq, err
}

// Figures of the choice of trigrams, from BenchmarkMillion.
const (
	maxGrams   = 4   // asked for
	sampleSize = 100 // payments that tell which are rare
	muchLonger = 4   // a list that is so many times as long as the rarest's is not asked for
	dearer     = 8   // looking at a payment that url_fts names, than at the next one that failed
)

// grams is a query of url_fts for all that may contain a text: the rarest of its every three
// characters in a row. A step in a trigram's list costs a tenth of looking at a payment, so asking
// for another one pays unless its list is much the longer one. Beyond ASCII the index folds more than
// small letters do, so it is not asked there. Where few failed, it is not asked for failed ones.
func (t *tx) grams(text string, state State, newest int64) (query string, err error) {
	list := trigrams(text)
	if len(list) == 0 {
		return "", nil
	}
	seen, failed := map[string]int{}, 0
	// Spread by a large prime, and not at equal steps: payments may be numbered in their URLs.
	err = t.forEach(func(row scanner) error {
		var url string
		var one State
		if err := row.Scan(&url, &one); err != nil {
			return err
		}
		for _, gram := range list {
			if strings.Contains(url, gram) {
				seen[gram]++
			}
		}
		if one == Failed {
			failed++
		}
		return nil
	}, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		SELECT url, state FROM n JOIN payment_search ON seq = i * 2147483647 % ?2 + 1`,
		min(sampleSize, newest), newest)
	if err != nil {
		return "", err
	}
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(seen[a], seen[b]) })
	rarest := max(seen[list[0]], 1)
	if state == Failed && failed <= dearer*rarest {
		return "", nil
	}
	var asked []string
	for _, gram := range list[:min(maxGrams, len(list))] {
		if len(asked) == 0 || seen[gram] <= muchLonger*rarest {
			asked = append(asked, `"`+strings.ReplaceAll(gram, `"`, `""`)+`"`)
		}
	}
	return strings.Join(asked, " AND "), nil
}

// trigrams are the different ones of a text, the last ones first; of those that are not ASCII, none.
func trigrams(text string) (list []string) {
	for end := len(text); end >= 3; end-- {
		gram := text[end-3 : end]
		isASCII := !strings.ContainsFunc(gram, func(r rune) bool { return r > unicode.MaxASCII })
		if isASCII && !slices.Contains(list, gram) {
			list = append(list, gram)
		}
	}
	return list
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

// urlPrefix is the part of a URL by which sums are kept: scheme and host, and the first word of the
// path, unless a digit in it (but v1) makes it look like one of many. There are few of them, so
// their sums are few.
func urlPrefix(url string) string {
	const ends = "/?#"
	scheme := strings.Index(url, "://")
	if scheme < 0 {
		return ""
	}
	host := scheme + len("://")
	path := host + strings.IndexAny(url[host:]+"/", ends)
	if path == len(url) || url[path] != '/' {
		return url[:path]
	}
	word := url[path+1:]
	word = word[:strings.IndexAny(word+"/", ends)]
	isVersion := len(word) == 2 && word[0] == 'v'
	if strings.ContainsAny(word, "0123456789") && !isVersion {
		return url[:path]
	}
	return url[:path+1+len(word)]
}

// source is where some of the payments are found, as the end of a query.
type source struct {
	from  string // with WHERE, to which more conditions may be added
	args  []any
	order string
}

// sources are where all payments are found that have the part of a URL and come at from or later
// and before to: the first has newer ones than the others. index is url_fts or, where only what is
// behind a prefix counts, url_suffix_fts.
func (q *search) sources(index string, from, to int64) []source {
	table, url := "payment_search", "url"
	switch {
	case q.State == Failed && q.grams == "":
		table += " INDEXED BY payment_search_failed"
	case q.State.Unfinished():
		table, url = "payments INDEXED BY payments_unfinished", "lower(url)"
	case len(q.Agents) == 1 && (q.grams == "" || q.URL == ""):
		table += " INDEXED BY payment_search_agent"
	}
	all := source{from: ` FROM ` + table + ` WHERE seq >= ? AND seq < ?`, args: []any{from, to},
		order: ` ORDER BY seq DESC`}
	has, args := "", []any{}
	if q.URL != "" {
		has, args = ` AND instr(`+url+`, ?)`, []any{q.part}
	}
	switch len(q.Agents) {
	case 0:
	case 1:
		has, args = has+` AND agent = ? AND agent <> ''`, append(args, q.Agents[0])
	default: // the newest first, until there are enough
		whose, names := oneOf("agent", q.Agents)
		has, args = has+` AND `+whose, append(args, names...)
	}
	all.from, all.args = all.from+has, append(all.args, args...)
	if q.grams == "" || q.URL == "" {
		return []source{all}
	}
	all.args[0] = max(from, q.indexed+1)
	long := source{
		from: ` FROM payment_search INDEXED BY payment_search_long
			WHERE seq >= ? AND seq < ? AND length(url) > ` + maxIndexed + has,
		args: append([]any{from, min(to, q.indexed+1)}, args...), order: all.order,
	}
	named := source{
		from: ` FROM ` + index + ` CROSS JOIN payment_search ON seq = ` + index + `.rowid WHERE ` + index +
			` MATCH ?`,
		args: []any{q.grams}, order: ` ORDER BY ` + index + `.rowid DESC`,
	}
	if from > 0 || to < math.MaxInt64 { // asking it of each takes a tenth of the time
		named.from += ` AND ` + index + `.rowid >= ? AND ` + index + `.rowid < ?`
		named.args = append(named.args, from, to)
	}
	named.from, named.args = named.from+has, append(named.args, args...)
	return []source{all, named, long}
}

// page is one payment more than the limit, where there are as many.
func (q *search) page() (list []Payment, err error) {
	sources := q.sources("url_fts", q.from, q.to)
	list, err = q.newest(q.Limit+1, sources[:1])
	if err != nil || len(list) > q.Limit || len(sources) == 1 {
		return list, err
	}
	older, err := q.newest(q.Limit+1-len(list), sources[1:])
	return append(list, older...), err
}

// page is the payments that a filter selects, newest first, and perhaps one more than its limit.
func (t *tx) page(f Filter) ([]Payment, error) {
	if t.fleet != nil {
		q, err := t.fleetSearch(f)
		if err != nil || q.empty {
			return nil, err
		}
		return q.page()
	}
	q, err := t.search(f)
	if err != nil || q.empty {
		return nil, err
	}
	return q.page()
}

// newest are the n newest payments of some sources.
func (q *search) newest(n int, sources []source) ([]Payment, error) {
	var found []string
	var args []any
	for _, s := range sources {
		found = append(found, `SELECT seq FROM (SELECT seq`+s.from+` AND `+q.state+s.order+` LIMIT ?)`)
		args = append(append(args, s.args...), n)
	}
	return collect(q.tx, scanPayment, selectPayment+` WHERE seq IN (`+strings.Join(found, ` UNION ALL `)+
		`) ORDER BY seq DESC LIMIT ?`, append(args, n)...)
}
