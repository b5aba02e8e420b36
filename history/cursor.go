package history

import (
	"database/sql/driver"
	"errors"
	"io"
)

// cursor goes through a long answer row by row. It reads the values as SQLite has them: database/sql takes
// longer to hand over a row than SQLite to find it. Several of one connection may be open at once; one that
// has a connection to itself (tx.beside) reads ahead, and makes what it hands over of a row meanwhile.
type cursor[T any] struct {
	t     *tx
	table string // for people
	kinds string // of each column: t(ext), i(nteger), b(ytes); in capitals where it may be NULL
	from  func(values) (T, error)
	rows  driver.Rows
	row   T // that it stands at
	done  bool

	batches chan batch[T] // read ahead; nil: it does not
	batch   batch[T]
	quit    chan struct{}
}

// values are a row's, each of its column's kind.
type values []driver.Value

// batch is some rows, and why there are no more: io.EOF, or trouble.
type batch[T any] struct {
	rows []T
	err  error
}

// batchRows is how many rows are handed over at a time.
const batchRows = 256

// errNoDriver is a defect of this package: the driver has changed.
var errNoDriver = errors.New("the database's driver answers no queries")

// openCursor begins a query without arguments, on a connection beside where there is one left.
func openCursor[T any](t *tx, table, kinds string, from func(values) (T, error), query string) (*cursor[T],
	error) {
	c := &cursor[T]{t: t, table: table, kinds: kinds, from: from}
	last := len(t.beside) - 1
	if last >= 0 {
		c.t, t.beside = t.beside[last], t.beside[:last]
	}
	err := c.t.conn.Raw(func(own any) (err error) {
		asking, ok := own.(driver.QueryerContext)
		if !ok {
			return errNoDriver
		}
		c.rows, err = asking.QueryContext(t.ctx, query, nil)
		return err
	})
	if err != nil {
		return nil, c.t.classify("read the ledger", err)
	}
	if c.t != t {
		c.batches, c.quit = make(chan batch[T], 4), make(chan struct{})
		go c.readAhead()
	}
	return c, nil
}

func (c *cursor[T]) close() {
	if c.batches != nil {
		close(c.quit)
		for range c.batches { // until readAhead is done
		}
	}
	_ = c.rows.Close()
}

// next goes to the next row; done: there is none. A value of another type than its column's is
// LEDGER_CORRUPT, as an empty one is where bytes may be missing.
func (c *cursor[T]) next() error {
	if c.done {
		return nil
	}
	if len(c.batch.rows) == 0 && c.batch.err == nil {
		c.batch = c.nextBatch()
	}
	if len(c.batch.rows) > 0 {
		c.row, c.batch.rows = c.batch.rows[0], c.batch.rows[1:]
		return nil
	}
	c.done = errors.Is(c.batch.err, io.EOF)
	if c.done {
		return nil
	}
	return c.batch.err
}

func (c *cursor[T]) nextBatch() batch[T] {
	if c.batches == nil {
		return c.readBatch(1)
	}
	return <-c.batches
}

// readAhead reads batches to the end, or until the cursor is closed.
func (c *cursor[T]) readAhead() {
	defer close(c.batches)
	for {
		b := c.readBatch(batchRows)
		select {
		case c.batches <- b:
		case <-c.quit:
			return
		}
		if b.err != nil {
			return
		}
	}
}

func (c *cursor[T]) readBatch(most int) (b batch[T]) {
	v := make(values, len(c.kinds))
	for len(b.rows) < most && b.err == nil {
		b.err = c.read(v)
		if b.err == nil {
			row, err := c.from(v)
			if err != nil {
				return batch[T]{b.rows, err}
			}
			b.rows = append(b.rows, row)
		}
	}
	return b
}

// read reads a row; io.EOF: there is none.
func (c *cursor[T]) read(row values) error {
	if err := c.t.ctx.Err(); err != nil {
		return c.t.classify("read the ledger", err)
	}
	err := c.rows.Next(row)
	if errors.Is(err, io.EOF) {
		return err
	}
	if err != nil {
		return c.t.classify("read the ledger", err)
	}
	for i, v := range row {
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

func (v values) int(column int) int64 { return v[column].(int64) }

func (v values) text(column int) string {
	text, _ := v[column].(string) // else NULL
	return text
}

func (v values) bytes(column int) []byte {
	data, _ := v[column].([]byte) // else NULL
	return data
}

// orNil is a text, nil for NULL.
func (v values) orNil(column int) *string {
	text, ok := v[column].(string)
	if !ok {
		return nil
	}
	return &text
}
