package history

import (
	"errors"
	"io"
)

// cursor goes through a long table row by row. One that has a connection to itself (tx.beside) reads ahead,
// and makes what it hands over of a row meanwhile.
type cursor[T any] struct {
	read func() (T, error) // io.EOF: there is none
	row  T                 // that it stands at
	done bool

	batches chan batch[T] // read ahead; nil: it does not
	batch   batch[T]
	quit    chan struct{}
}

// batch is some rows, and why there are no more: io.EOF, or trouble.
type batch[T any] struct {
	rows []T
	err  error
}

// batchRows is how many rows are handed over at a time.
const batchRows = 256

// openCursor begins to read, on a connection beside where there is one left.
func openCursor[T any](t *tx, open func(*tx) (read func() (T, error), err error)) (*cursor[T], error) {
	from, last := t, len(t.beside)-1
	if last >= 0 {
		from, t.beside = t.beside[last], t.beside[:last]
	}
	read, err := open(from)
	if err != nil {
		return nil, err
	}
	c := &cursor[T]{read: read}
	if from != t {
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
}

// next goes to the next row; done: there is none.
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

func (c *cursor[T]) readBatch(most int) batch[T] {
	b := batch[T]{rows: make([]T, 0, most)}
	for len(b.rows) < most {
		row, err := c.read()
		if err != nil {
			b.err = err
			return b
		}
		b.rows = append(b.rows, row)
	}
	return b
}
