package history

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// A connection runs its queries by the driver itself. What database/sql does about each (locks, a watch on
// its context, what belongs to what, for connections that many share) takes a tenth of a payment, and a
// connection of a pool has one user at a time.

// errNoDriver is a defect of this package: the driver has changed.
var errNoDriver = errors.New("the database's driver answers no queries")

// statement is a compiled query.
type statement interface {
	driver.StmtExecContext
	driver.StmtQueryContext
	Close() error
}

// compile compiles a query for this connection.
func (c *conn) compile(ctx context.Context, query string) (s statement, err error) {
	err = c.Raw(func(own any) error {
		compiler, ok := own.(driver.ConnPrepareContext)
		if !ok {
			return errNoDriver
		}
		compiled, err := compiler.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		s, ok = compiled.(statement)
		if !ok {
			return errNoDriver
		}
		return nil
	})
	return s, err
}

// stmt is the compiled query, and whether it stays with the connection; else whoever uses it closes it. A
// PRAGMA must not come here: SQLite does most of what it says when it is compiled, and nothing when it is
// run again.
func (c *conn) stmt(ctx context.Context, query string) (s statement, stays bool, err error) {
	s, stays = c.stmts[query]
	if stays {
		return s, true, nil
	}
	s, err = c.compile(ctx, query)
	stays = err == nil && len(c.stmts) < maxStatements
	if stays {
		c.stmts[query] = s
	}
	return s, stays, err
}

func (c *conn) exec(ctx context.Context, query string, args ...any) (done driver.Result, err error) {
	s, stays, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	if !stays {
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	named, err := c.arguments(args)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, named)
}

// query runs a query, at once to its first row: that is what ctx can end.
func (c *conn) query(ctx context.Context, query string, args ...any) (r *rows, err error) {
	s, stays, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	r = &rows{}
	if !stays {
		r.compiled = s
	}
	named, err := c.arguments(args)
	if err == nil {
		r.answer, err = s.QueryContext(ctx, named)
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.values = make([]driver.Value, len(r.answer.Columns()))
	return r, nil
}

// connection runs queries: of SQLite's, or of a fleet's server.
type connection interface {
	exec(ctx context.Context, query string, args ...any) (driver.Result, error)
	query(ctx context.Context, query string, args ...any) (*rows, error)
}

// queryRow is query for one row. Its error is Scan's.
func queryRow(ctx context.Context, c connection, query string, args ...any) oneRow {
	r, err := c.query(ctx, query, args...)
	return oneRow{r, err}
}

// arguments are args as the driver takes them: until the connection's next query, since the driver copies
// what it binds.
func (c *conn) arguments(args []any) ([]driver.NamedValue, error) {
	clear(c.named)
	c.named = c.named[:0]
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, err
		}
		c.named = append(c.named, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return c.named, nil
}

// rows are the answer to a query; close it.
type rows struct {
	answer   driver.Rows // nil: there is none
	compiled statement   // to be closed with it; nil: it stays
	values   []driver.Value
}

// next goes to the next row; io.EOF: there is none.
func (r *rows) next() error { return r.answer.Next(r.values) }

func (r *rows) close() (err error) {
	if r.answer != nil {
		err = r.answer.Close()
	}
	if r.compiled != nil {
		err = errors.Join(err, r.compiled.Close())
	}
	return err
}

// Scan stores the columns of the row that it stands at.
func (r *rows) Scan(into ...any) error {
	if len(into) != len(r.values) {
		return fmt.Errorf("%d places for %d columns", len(into), len(r.values))
	}
	for i, place := range into {
		if err := assign(place, r.values[i]); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}

// oneRow is the first row of an answer, or why there is no answer.
type oneRow struct {
	*rows
	err error
}

// Scan ends the answer. Its error is sql.ErrNoRows where that is empty.
func (r oneRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.next()
	switch {
	case errors.Is(err, io.EOF):
		err = sql.ErrNoRows
	case err == nil:
		err = r.rows.Scan(into...)
	}
	return errors.Join(err, r.close())
}

// assign stores a value of SQLite's as database/sql does. The driver's bytes are a copy already.
func assign(place any, v driver.Value) error {
	switch place := place.(type) {
	case *string:
		if text, ok := v.(string); ok {
			*place = text
			return nil
		}
		return convert(place, v)
	case *[]byte:
		if data, ok := v.([]byte); ok || v == nil {
			*place = data
			return nil
		}
		return convert(place, v)
	case *int64:
		if n, ok := v.(int64); ok {
			*place = n
			return nil
		}
		return convert(place, v)
	case *bool:
		return convert(place, v)
	case *any:
		*place = v
		return nil
	case sql.Scanner:
		return place.Scan(v)
	}
	return assignKind(reflect.ValueOf(place).Elem(), v)
}

// assignKind is assign for types that are made of others.
func assignKind(place reflect.Value, v driver.Value) error {
	switch {
	case place.Kind() == reflect.String:
		var text string
		err := assign(&text, v)
		place.SetString(text)
		return err
	case place.CanInt():
		var n int64
		err := assign(&n, v)
		if err == nil && place.OverflowInt(n) {
			err = fmt.Errorf("%d is too much for a %s", n, place.Type())
		}
		place.SetInt(n)
		return err
	case place.Kind() == reflect.Pointer && v == nil:
		place.SetZero()
		return nil
	case place.Kind() == reflect.Pointer:
		place.Set(reflect.New(place.Type().Elem()))
		return assign(place.Interface(), v)
	}
	return fmt.Errorf("no column is stored in a %s", place.Type())
}

// convert stores a value of another type.
func convert[T any](place *T, v driver.Value) error {
	var converted sql.Null[T]
	err := converted.Scan(v)
	if err == nil && !converted.Valid {
		err = errors.New("it is NULL")
	}
	*place = converted.V
	return err
}
