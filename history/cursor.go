package history

import (
	"database/sql/driver"
	"errors"
	"io"
)

// cursor goes through a long answer row by row, with the values as SQLite has them: database/sql takes
// longer to hand over a row than SQLite to find it. Several of one connection may be open at once.
type cursor struct {
	t     *tx
	table string // for people
	kinds string // of each column: t(ext), i(nteger), b(ytes); in capitals where it may be NULL
	rows  driver.Rows
	row   []driver.Value
	done  bool
}

// errNoDriver is a defect of this package: the driver has changed.
var errNoDriver = errors.New("the database's driver answers no queries")

// open begins a query without arguments.
func (t *tx) open(table, kinds, query string) (*cursor, error) {
	c := &cursor{t: t, table: table, kinds: kinds, row: make([]driver.Value, len(kinds))}
	err := t.conn.Raw(func(own any) (err error) {
		asking, ok := own.(driver.QueryerContext)
		if !ok {
			return errNoDriver
		}
		c.rows, err = asking.QueryContext(t.ctx, query, nil)
		return err
	})
	if err != nil {
		return nil, t.classify("read the ledger", err)
	}
	return c, nil
}

func (c *cursor) close() { _ = c.rows.Close() }

// next reads the next row into c.row; done: there is none. A value of another type than its column's is
// LEDGER_CORRUPT, as an empty one is where bytes may be missing.
func (c *cursor) next() error {
	if c.done {
		return nil
	}
	if err := c.t.ctx.Err(); err != nil {
		return c.t.classify("read the ledger", err)
	}
	err := c.rows.Next(c.row)
	if errors.Is(err, io.EOF) {
		c.done = true
		return nil
	}
	if err != nil {
		return c.t.classify("read the ledger", err)
	}
	for i, v := range c.row {
		if !isOfKind(v, c.kinds[i]) {
			return corrupt("a row of %s holds a value of another type", c.table)
		}
	}
	return nil
}

func isOfKind(v driver.Value, kind byte) bool {
	switch v := v.(type) {
	case int64:
		return kind == 'i' || kind == 'I'
	case string:
		return kind == 't' || kind == 'T'
	case []byte:
		return kind == 'b' || (kind == 'B' && len(v) > 0)
	case nil:
		return kind == 'T' || kind == 'B' || kind == 'I'
	}
	return false
}

func (c *cursor) int(column int) int64 { return c.row[column].(int64) }

func (c *cursor) text(column int) string {
	text, _ := c.row[column].(string) // else NULL
	return text
}

func (c *cursor) bytes(column int) []byte {
	data, _ := c.row[column].([]byte) // else NULL
	return data
}

// orNil is a text, nil for NULL.
func (c *cursor) orNil(column int) *string {
	text, ok := c.row[column].(string)
	if !ok {
		return nil
	}
	return &text
}
