package report

import (
	"context"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
)

// Range selects payments for the books. Zero fields do not restrict.
type Range struct {
	After, Until time.Time // made at or after, and before
	URL          string    // part of it
	Host         string
	Session      string
	Agents       []string // as of a Filter
	State        history.State
}

func (r Range) where() condition {
	c := Filter{After: r.After, Until: r.Until, URL: r.URL, State: r.State, Agents: r.Agents}.where()
	if r.Host != "" {
		c.and(`host = ?`, r.Host)
	}
	if r.Session != "" {
		c.and(`session = ?`, r.Session)
	}
	return c
}

// pageOfBooks is how many payments one reading of Each holds.
const pageOfBooks = 1000

// Each calls f with every payment in the range that there is when it begins, oldest first, without its
// evidence. The ledger is read a page at a time, each in a transaction of its own that is over when f is
// called: so a long export keeps nobody from cutting SQLite's log, and takes the memory of a page. Payments
// are never taken out, so each comes once; its state is the one it has when its page is read.
func Each(ctx context.Context, s *history.Store, r Range, f func(history.Payment) error) error {
	var newest int64
	err := s.View(ctx, func(t *sqldb.Tx) error {
		return t.Row(`SELECT coalesce(max(seq), 0) FROM payments`).Scan(&newest)
	})
	for next := int64(1); err == nil && next <= newest; {
		c := r.where()
		c.and(`seq >= ? AND seq <= ?`, next, newest)
		var page []history.Payment
		err = s.View(ctx, func(t *sqldb.Tx) (err error) {
			page, err = sqldb.Collect(t, history.ScanPayment,
				history.SelectBrief+c.text+` ORDER BY seq LIMIT ?`, append(c.args, pageOfBooks)...)
			return err
		})
		next = newest + 1
		if len(page) == pageOfBooks {
			next = page[pageOfBooks-1].Number + 1
		}
		for _, p := range page {
			if err == nil {
				err = f(p)
			}
		}
	}
	return err
}
