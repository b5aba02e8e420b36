package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"x402-wallet/x402"
)

// Tx is a transaction, for one goroutine.
type Tx struct {
	Now    time.Time // by the database's clock, or this computer's
	Shared any       // what the changes of one transaction know in common; nil after one of them was undone

	ctx     context.Context
	conn    connection
	engine  Engine
	failure error   // the first of the database's errors
	isIn    bool    // an answer is being read: PostgreSQL takes no other query before its end
	change  *change // nil in a transaction that only reads
}

// connection runs queries: a transaction's, or any.
type connection interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Row is a row of an answer.
type Row interface{ Scan(into ...any) error }

// Exec runs a query that changes rows, and returns how many it changed.
func (t *Tx) Exec(query string, args ...any) (rows int64, err error) {
	values, err := arguments(args)
	if err != nil {
		return 0, err
	}
	if t.isIn {
		return 0, t.Classify("write the ledger", errNested)
	}
	done, err := t.conn.ExecContext(t.ctx, t.engine.Rewrite(query), values...)
	if err != nil {
		return 0, t.Classify("write the ledger", err)
	}
	rows, err = done.RowsAffected()
	return rows, t.Classify("write the ledger", err)
}

// Row asks for the first row of an answer. Its Scan returns sql.ErrNoRows if the answer is empty.
func (t *Tx) Row(query string, args ...any) Row {
	rows, err := t.Query(query, args) //nolint:rowserrcheck // Scan asks for it
	return firstRow{t, rows, err}
}

// Is asks for one yes or no.
func (t *Tx) Is(query string, args ...any) (yes bool, err error) {
	err = t.Row(query, args...).Scan(&yes)
	return yes, err
}

// Each calls f with each row of an answer, until f fails.
func (t *Tx) Each(f func(Row) error, query string, args ...any) error {
	rows, err := t.Query(query, args)
	if err != nil {
		return t.Classify("read the ledger", err)
	}
	defer rows.Close()
	t.isIn = true
	defer func() { t.isIn = false }()
	for rows.Next() {
		if err := f(checkedRow{t, rows}); err != nil {
			return err
		}
	}
	return t.Classify("read the ledger", rows.Err())
}

// errNested is a defect: a query within another one.
var errNested = x402.Errorf(x402.Internal, "a query was made while the answer to another one was read")

func (t *Tx) Query(query string, args []any) (*sql.Rows, error) {
	if t.isIn {
		return nil, errNested
	}
	values, err := arguments(args)
	if err != nil {
		return nil, err
	}
	return t.conn.QueryContext(t.ctx, t.engine.Rewrite(query), values...)
}

// arguments are args as both engines take them: yes and no are 1 and 0.
func arguments(args []any) ([]any, error) {
	values := make([]any, len(args))
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, err
		}
		if yes, is := value.(bool); is {
			value = int64(0)
			if yes {
				value = int64(1)
			}
		}
		values[i] = value
	}
	return values, nil
}

// classify says what an error of the database means, and notes that there was one. sql.ErrNoRows is an
// answer.
func (t *Tx) Classify(doing string, err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if left := t.ctx.Err(); left != nil && t.ctx != context.Background() {
		err = OutOfTime(doing, left)
	} else {
		err = t.engine.Classify(doing, err)
	}
	if t.failure == nil {
		t.failure = err
	}
	return err
}

func (t *Tx) IsServer() bool { return t.engine.IsServer() }

// AfterCommit has f called once this change is durable, before Write returns. f must return at once.
func (t *Tx) AfterCommit(f func()) { t.change.committed = append(t.change.committed, f) }

// Failed reports whether the database failed in this transaction.
func (t *Tx) Failed() bool { return t.failure != nil }

// checkedRow is a row whose errors are classified.
type checkedRow struct {
	tx   *Tx
	rows *sql.Rows
}

func (r checkedRow) Scan(into ...any) error {
	return r.tx.Classify("read the ledger", r.rows.Scan(into...))
}

// firstRow is the first row of an answer, or the reason why there is no answer.
type firstRow struct {
	tx   *Tx
	rows *sql.Rows
	err  error
}

func (r firstRow) Scan(into ...any) error {
	if r.err != nil {
		return r.tx.Classify("read the ledger", r.err)
	}
	defer r.rows.Close()
	err := sql.ErrNoRows
	if r.rows.Next() {
		err = r.rows.Scan(into...)
	} else if failed := r.rows.Err(); failed != nil {
		err = failed
	}
	if closed := r.rows.Close(); err == nil {
		err = closed
	}
	return r.tx.Classify("read the ledger", err)
}

// Collect returns an answer as scan makes each row.
func Collect[T any](t *Tx, scan func(Row) (T, error), query string, args ...any) (list []T, err error) {
	err = t.Each(func(row Row) error {
		one, err := scan(row)
		list = append(list, one)
		return err
	}, query, args...)
	return list, err
}

// Find returns the first row of an answer, or nil if the answer is empty.
func Find[T any](t *Tx, scan func(Row) (T, error), query string, args ...any) (*T, error) {
	found, err := scan(t.Row(query, args...))
	if err != nil {
		return nil, Otherwise(err, nil)
	}
	return &found, nil
}

// Otherwise is another error, or none, in place of sql.ErrNoRows.
func Otherwise(err, another error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return another
	}
	return err
}

// Containing is the pattern of LIKE ? ESCAPE '\' for texts, in lower case, that contain a text, whatever the
// case of its ASCII letters.
func Containing(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(lower(text)) + "%"
}

// lower folds ASCII letters.
func lower(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, text)
}

func ScanText(row Row) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

func ScanNumber(row Row) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// Micros is a time as columns have it: microseconds since 1970, or zero for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros is the time of a column: see Micros.
func FromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// DayNumber is a time's day as columns have it: since 1970, in UTC.
func DayNumber(t time.Time) int64 { return Micros(t) / (24 * time.Hour).Microseconds() }

// Free is how many bytes of the database's file are not in use.
func (t *Tx) Free() (bytes int64, err error) { return t.engine.Free(t) }

// GiveBack gives free bytes of the file back to the disk.
func (t *Tx) GiveBack(bytes int64) error { return t.engine.GiveBack(t, bytes) }

// PagesAreSound refuses, with LEDGER_CORRUPT, a file that is damaged.
func (t *Tx) PagesAreSound() error { return t.engine.PagesAreSound(t) }
