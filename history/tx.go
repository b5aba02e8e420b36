package history

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"time"
)

// A transaction on the ledger, and how it reads.

// tx is one transaction on the ledger. It never leaves this package.
type tx struct {
	ctx     context.Context
	conn    connection
	fleet   *fleet // nil: on SQLite
	failure error  // the first error of the database in it
	known   *known
	Now     time.Time // never before a payment that is in the ledger: a clock set back opens no window again

	contentQuota int64 // as Options.ContentQuota
	changes      bool  // in a fleet: it may lock rows
	moves        bool  // its store's
	followed     *followed
	hasAlerted   bool  // it wrote an alert
	beside       []*tx // other connections that read the same state of the ledger: for cursors
}

// known is what was read of the ledger in a transaction and stays true to its end: nobody else writes
// meanwhile, and what the transaction itself writes is noted here. Zero is not known.
type known struct {
	head     int64  // the audit chain's last row
	hash     []byte // of that row
	newest   int64  // payment's time, microseconds
	isFormat bool   // the ledger has this program's format
	// the file is where it was: see Store.sells
	isInPlace bool
	freezes   *[]Freeze
	sealed    *sealed // as the last signature left it, with what was written since
}

// view runs f on a consistent reading. What f returns is returned unchanged.
func (s *Store) view(ctx context.Context, f func(*tx) error) error {
	if s.fleet != nil {
		return s.fleet.view(ctx, s, f)
	}
	return s.read.with(ctx, func(c *conn) error {
		return c.transaction(patient(ctx), beginReading, func() error {
			return f(s.reading(ctx, c))
		})
	})
}

// viewBeside is view with other connections beside that read the same state; where nobody can be kept from
// writing while they begin, without them.
func (s *Store) viewBeside(ctx context.Context, connections int, f func(*tx) error) error {
	unlock, err := s.writeLock.lockFor(patient(ctx))
	if err != nil {
		return s.view(ctx, f)
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	var begin func(beside []*tx) error
	begin = func(beside []*tx) error {
		return s.view(ctx, func(t *tx) error {
			if len(beside) < connections {
				return begin(append(beside, t))
			}
			unlock()
			t.beside = beside
			return f(t)
		})
	}
	return begin(nil)
}

// seldom is read for an answer that is mostly none: is, a query for one yes or no, is asked first, without a
// transaction around it.
func seldom[T any](ctx context.Context, s *Store, f func(*tx) (T, error), is string, args ...any) (v T,
	err error) {
	found, err := readOnce(ctx, s, func(t *tx) (bool, error) { return t.is(is, args...) })
	if err == nil && !found {
		return v, nil
	}
	return read(ctx, s, f) // which waits for others
}

// is asks for one yes or no that an index finds at once.
func (t *tx) is(query string, args ...any) (yes bool, err error) {
	err = t.row(query, args...).Scan(&yes)
	return yes, err
}

// readOnce is read for an f of one query, or of more about what never changes: it needs no transaction around
// it. Only where the database fails, perhaps because somebody else has it, it is read as read does, which
// waits.
func readOnce[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (v T, err error) {
	if s.fleet != nil {
		return read(ctx, s, f)
	}
	hasFailed := false
	err = s.lendWarm(ctx, func(c *conn) error {
		t := s.reading(ctx, c)
		v, err = f(t)
		hasFailed = t.failure != nil
		return err
	})
	if hasFailed {
		return read(ctx, s, f)
	}
	return v, err
}

// readWarm is read for an f that takes no longer than what is written does: whoever writes may have to wait
// for it.
func readWarm[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (v T, err error) {
	if s.fleet != nil {
		return read(ctx, s, f)
	}
	err = s.lendWarm(ctx, func(c *conn) error {
		return c.transaction(patient(ctx), beginReading, func() error {
			v, err = f(s.reading(ctx, c))
			return err
		})
	})
	return v, err
}

// lendWarm lends f the connection that writes, if nobody writes at this moment: that one has in memory what
// this process wrote, while the others forget all they have read whenever something was written.
func (s *Store) lendWarm(ctx context.Context, f func(*conn) error) error {
	lent, err := s.write.tryWith(ctx, f)
	if !lent {
		err = s.read.with(ctx, f)
	}
	return err
}

func (s *Store) reading(ctx context.Context, c *conn) *tx {
	return &tx{ctx: ctx, conn: c, known: &known{}, Now: s.now().UTC(), followed: &s.followed, moves: s.moves}
}

// read runs f on a consistent reading, and returns what it returns.
func read[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (v T, err error) {
	err = s.view(ctx, func(t *tx) error {
		v, err = f(t)
		return err
	})
	return v, err
}

// classify says what an error of the database means, and notes that there was one.
// sql.ErrNoRows is an answer.
func (t *tx) classify(doing string, err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if t.fleet != nil {
		err = fleetError(err)
	} else {
		err = ledgerError(doing, err)
	}
	if t.failure == nil {
		t.failure = err
	}
	return err
}

func (t *tx) exec(query string, args ...any) (driver.Result, error) {
	done, err := t.conn.exec(t.ctx, query, args...)
	return done, t.classify("write the ledger", err)
}

// change runs a query that changes rows, and says how many.
func (t *tx) change(query string, args ...any) (rows int64, err error) {
	done, err := t.exec(query, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

// scanner is a row of an answer.
type scanner interface{ Scan(...any) error }

// checkedRow is a row whose errors are classified.
type checkedRow struct {
	*tx
	scanner
}

func (r checkedRow) Scan(into ...any) error {
	return r.classify("read the ledger", r.scanner.Scan(into...))
}

// row asks for what an index finds at once: to watch whether the caller leaves meanwhile would cost
// more than the query.
func (t *tx) row(query string, args ...any) scanner {
	if t.ctx.Err() != nil {
		return t.slowRow(query, args...) // which says so
	}
	return t.queryRow(context.Background(), query, args)
}

// slowRow asks for what may take a while, unless the caller leaves.
func (t *tx) slowRow(query string, args ...any) scanner { return t.queryRow(t.ctx, query, args) }

func (t *tx) queryRow(ctx context.Context, query string, args []any) scanner {
	return checkedRow{tx: t, scanner: queryRow(ctx, t.conn, query, args...)}
}

// forEach goes through an answer, to its end or the first error, unless the caller leaves.
func (t *tx) forEach(f func(row scanner) error, query string, args ...any) (err error) {
	const doing = "read the ledger"
	rows, err := t.conn.query(t.ctx, query, args...)
	if err != nil {
		return t.classify(doing, err)
	}
	defer func() {
		if closing := t.classify(doing, rows.close()); err == nil {
			err = closing
		}
	}()
	for {
		switch err := cmp.Or(t.ctx.Err(), rows.next()); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return t.classify(doing, err)
		}
		if err := f(checkedRow{tx: t, scanner: rows}); err != nil {
			return err
		}
	}
}

// collect returns an answer, of each row what scan makes of it.
func collect[T any](t *tx, scan func(row scanner) (T, error), query string, args ...any) (list []T,
	err error) {
	err = t.forEach(func(row scanner) error {
		one, err := scan(row)
		list = append(list, one)
		return err
	}, query, args...)
	return list, err
}

// find returns the first row of an answer; nil: it has none.
func find[T any](t *tx, scan func(row scanner) (T, error), query string, args ...any) (*T, error) {
	found, err := scan(t.row(query, args...))
	if err != nil {
		return nil, none(err, nil)
	}
	return &found, nil
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// none is what to answer where there is no row.
func none(err, what error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return what
	}
	return err
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
