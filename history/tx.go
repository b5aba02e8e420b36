package history

import (
	"context"
	"math"
	"sync/atomic"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// tx is a transaction on the ledger. It never leaves this package.
type tx struct {
	*sqldb.Tx
	known *known

	followed *followed
	newest   *atomic.Pointer[Head] // see database
	sealed   *Head                 // the row that this transaction sealed last; nil: none
	contents Contents
	alerts   Alerts
}

// known is what was read of the ledger in a transaction and stays true to its end: nobody else writes
// meanwhile, and what the transaction itself writes is noted here. A zero field is not known.
type known struct {
	head    int64  // the audit chain's last row
	hash    []byte // of that row
	last    int64  // the newest payment's number
	newest  int64  // its time, microseconds
	freezes *[]Freeze
	sealed  *sealed // as the last signature left it, with what was written since
	ownForm bool    // see there
}

// tx runs f in a durable transaction: see sqldb.DB.Write.
func (s *Store) tx(ctx context.Context, f func(*tx) error) error {
	var sealed *Head
	err := s.db.Write(ctx, func(d *sqldb.Tx) error {
		shared, _ := d.Shared.(*known)
		if shared == nil {
			shared = &known{}
			d.Shared = shared
		}
		t := &tx{Tx: d, known: shared, followed: &s.followed, newest: &s.newest, contents: s.contents,
			alerts: s.alerts}
		err := f(t)
		sealed = t.sealed
		return err
	})
	if err == nil && sealed != nil {
		s.hasSealed(sealed)
	}
	return err
}

// hasSealed notes a row that is in the ledger from now on.
func (s *Store) hasSealed(row *Head) {
	for last := s.newest.Load(); last == nil || last.Seq < row.Seq; last = s.newest.Load() {
		if s.newest.CompareAndSwap(last, row) {
			return
		}
	}
}

// View runs f on one state of the ledger, for packages that show it. What f returns is returned unchanged.
func (s *Store) View(ctx context.Context, f func(*sqldb.Tx) error) error { return s.db.View(ctx, f) }

// Write runs f in a durable transaction, for packages that keep rows of their own in the ledger: see
// sqldb.DB.Write. f changes no rows of this package.
func (s *Store) Write(ctx context.Context, f func(*sqldb.Tx) error) error { return s.db.Write(ctx, f) }

// Note is Write that also appends an event about no payment to the audit chain, with the detail that f
// returns. Without a detail there is no event.
func (s *Store) Note(ctx context.Context, event string, f func(*sqldb.Tx) (detail any, err error)) error {
	return s.tx(ctx, func(t *tx) error {
		detail, err := f(t.Tx)
		if err != nil || detail == nil {
			return err
		}
		return t.audit(0, event, detail)
	})
}

// walk reads the audit chain behind a row, and checks that it holds together and has a head on it.
func (t *tx) walk(after int64, at Head, each func(audit.Row) error) error {
	return audit.Walk(t.Tx, after, math.MaxInt64, audit.Mark{Seq: at.Seq, Hash: at.Hash}, each)
}

// CutLog gives the room of SQLite's log back to the disk: see sqldb.DB.CutLog.
func (s *Store) CutLog(ctx context.Context) error { return s.db.CutLog(ctx) }

// view runs f on one state of the ledger. What f returns is returned unchanged.
func (s *Store) view(ctx context.Context, f func(*tx) error) error {
	return s.db.View(ctx, func(d *sqldb.Tx) error { return f(s.reading(d)) })
}

func (s *Store) reading(d *sqldb.Tx) *tx {
	return &tx{Tx: d, known: &known{}, followed: &s.followed, newest: &s.newest, contents: s.contents}
}

// read is view for an f with a result.
func read[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (v T, err error) {
	err = s.view(ctx, func(t *tx) error {
		v, err = f(t)
		return err
	})
	return v, err
}

// readOnce is read for an f of one query, or of several about what never changes. It has no transaction
// around it.
func readOnce[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (v T, err error) {
	err = s.db.Once(ctx, func(d *sqldb.Tx) error {
		v, err = f(s.reading(d))
		return err
	})
	return v, err
}
