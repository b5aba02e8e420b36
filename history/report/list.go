package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Filter selects payments for people and agents. Zero fields do not restrict.
type Filter struct {
	Limit  int    // at most this many; 0 means 10
	Before string // older than this payment (its id, or its transaction's)
	URL    string // part of the URL, whatever the case of its ASCII letters
	After  time.Time
	Until  time.Time // made before it
	State  history.State
	Agents []string // whose they are, of those that share the wallet; nil for anybody's
}

// maxPart bounds the part of a URL that is looked for, in bytes: databases take no very long pattern.
const maxPart = 8 << 10

// worth is what a payment adds to a sum.
const worth = `CASE WHEN state = 'failed' THEN 0 ELSE usd - returned END`

// where is the filter as a condition, but for Before.
func (f Filter) where() (c condition) {
	if !f.After.IsZero() {
		c.and(`created_at >= ?`, sqldb.Micros(f.After))
	}
	if !f.Until.IsZero() {
		c.and(`created_at < ?`, sqldb.Micros(f.Until))
	}
	if f.State != "" {
		c.and(`state || '' = ?`, f.State) // by no index of a state, whose rows have to be read
	}
	if f.Agents != nil {
		c.andOneOf(`agent`, f.Agents)
	}
	if f.URL != "" {
		isURL := len(f.URL) <= maxPart && utf8.ValidString(f.URL) &&
			!strings.ContainsFunc(f.URL, unicode.IsControl)
		if isURL {
			c.andContains(`url`, f.URL)
		} else {
			c.and(`1 = 0`)
		}
	}
	return c
}

// List returns payments, newest first, whether there are more, and what all that match spent, by symbol;
// failed ones spent nothing. ErrNotFound if f.Before names no payment.
func List(ctx context.Context, s *history.Store, f Filter) (list []history.Payment, more bool,
	totals map[string]money.Dollars, err error) {
	if f.Limit <= 0 {
		f.Limit = 10
	}
	totals = map[string]money.Dollars{}
	err = s.View(ctx, func(t *sqldb.Tx) error {
		if list, err = f.page(t); err != nil {
			return err
		}
		if f.Before == "" && len(list) <= f.Limit { // it is all that match
			sumOf(list, totals)
			return nil
		}
		c := f.where()
		return addSums(t, totals, `SELECT symbol, sum(`+worth+`) FROM payments`+c.text+` GROUP BY symbol`,
			c.args...)
	})
	more = len(list) > f.Limit
	if more {
		list = list[:f.Limit]
	}
	delete(totals, "") // of sign-ins, which are in no token
	return list, more, totals, err
}

func sumOf(list []history.Payment, into map[string]money.Dollars) {
	for _, p := range list {
		if worth := p.Worth(); p.State != history.Failed && worth != 0 {
			into[p.Symbol] = into[p.Symbol].Add(worth)
		}
	}
}

// page is the payments that a filter selects, newest first, and perhaps one more than its limit.
func (f Filter) page(t *sqldb.Tx) ([]history.Payment, error) {
	c := f.where()
	if f.Before != "" {
		before, err := numberOf(t, f.Before)
		if err != nil {
			return nil, err
		}
		c.and(`seq < ?`, before)
	}
	return sqldb.Collect(t, history.ScanPayment, history.SelectPayment+` WHERE seq IN (
		SELECT seq FROM payments`+c.text+` ORDER BY created_at DESC, seq DESC LIMIT ?) ORDER BY seq DESC`,
		append(c.args, f.Limit+1)...)
}

// numberOf is the number of a payment by its id, or its transaction's; of several in one the newest's.
func numberOf(t *sqldb.Tx, name string) (int64, error) {
	seq, err := sqldb.ScanNumber(t.Row(`SELECT seq FROM payments WHERE id = ?`, name))
	if sqldb.Otherwise(err, nil) != nil || err == nil {
		return seq, err
	}
	seq, err = sqldb.ScanNumber(t.Row(`SELECT seq FROM payments
		WHERE transaction_id = ? AND transaction_id <> '' ORDER BY seq DESC LIMIT 1`, name))
	return seq, sqldb.Otherwise(err, fmt.Errorf("no such payment: %w", history.ErrNotFound))
}

// addSums adds up the rows of a query by its first column.
func addSums(t *sqldb.Tx, into map[string]money.Dollars, query string, args ...any) error {
	return t.Each(func(row sqldb.Row) error {
		var key string
		var sum money.Dollars
		err := row.Scan(&key, &sum)
		if sum != 0 {
			into[key] = into[key].Add(sum)
		}
		return err
	}, query, args...)
}

// Part is what one seller, by host, or one network came to.
type Part struct {
	Key string
	Sum money.Dollars
}

// Parts are what the payments that match came to, the dearest first. Others is of the sellers that are not
// among them.
type Parts struct {
	Sellers, Networks []Part
	Others            money.Dollars
}

// AddUp adds up the payments that match a filter (but for its page), by seller and by network, at most so
// many of each.
func AddUp(ctx context.Context, s *history.Store, f Filter, most int) (p Parts, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		c := f.where()
		sellers, networks := map[string]money.Dollars{}, map[string]money.Dollars{}
		err := addSums(t, sellers, `SELECT host, sum(`+worth+`) FROM payments`+c.text+` GROUP BY host`,
			c.args...)
		if err == nil {
			err = addSums(t, networks, `SELECT network, sum(`+worth+`) FROM payments`+c.text+
				` GROUP BY network`, c.args...)
		}
		p.Sellers, p.Others = dearest(sellers, most)
		p.Networks, _ = dearest(networks, most)
		return err
	})
	return p, err
}

// dearest are so many at most, and what the others came to.
func dearest(sums map[string]money.Dollars, most int) (list []Part, others money.Dollars) {
	for key, sum := range sums {
		list = append(list, Part{Key: key, Sum: sum})
	}
	slices.SortFunc(list, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.Key, b.Key))
	})
	for _, p := range list[min(most, len(list)):] {
		others = others.Add(p.Sum)
	}
	return list[:min(most, len(list))], others
}

// OpenApprovals returns the approvals that are open, oldest first.
func OpenApprovals(ctx context.Context, s *history.Store) (list []history.Approval, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		list, err = sqldb.Collect(t, history.ScanApproval, history.SelectApproval+`
			WHERE state IN ('pending', 'approved', 'denied') AND expires_at > ?
			AND expires_at > coalesce((SELECT created_at FROM payments ORDER BY seq DESC LIMIT 1), 0)
			ORDER BY created_at, id`, sqldb.Micros(t.Now))
		return err
	})
	return list, err
}

// Questions are OpenApprovals as a person is shown them: each list as one.
func Questions(ctx context.Context, s *history.Store) (questions []history.Approval, err error) {
	all, err := OpenApprovals(ctx, s)
	at := map[string]int{} // of a list
	var lists [][]history.Approval
	for _, a := range all {
		list := history.ListOf(a.ID)
		i, known := at[list]
		if !known {
			i, at[list] = len(lists), len(lists)
			lists = append(lists, nil)
		}
		lists[i] = append(lists[i], a)
	}
	for _, list := range lists {
		questions = append(questions, history.Together(list))
	}
	return questions, err
}

type condition struct {
	text string
	args []any
}

func (c *condition) and(text string, args ...any) {
	if c.text == "" {
		c.text = ` WHERE ` + text
	} else {
		c.text += ` AND ` + text
	}
	c.args = append(c.args, args...)
}

// andOneOf adds that a column is one of some texts.
func (c *condition) andOneOf(column string, list []string) {
	if len(list) == 0 {
		c.and(`1 = 0`)
		return
	}
	args := make([]any, len(list))
	for i, text := range list {
		args[i] = text
	}
	c.and(column+` IN (`+strings.Repeat(`, ?`, len(list))[2:]+`)`, args...)
}

// andContains adds that a column contains a text, whatever the case of ASCII letters.
func (c *condition) andContains(column, text string) {
	c.and(`lower(`+column+`) LIKE ? ESCAPE '\'`, sqldb.Containing(text))
}
