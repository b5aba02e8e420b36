package history

import (
	"context"
	"errors"
	"io"
	"time"

	"x402-wallet/history/postgres"
)

// What is written to a fleet's ledger outside the money path.

// write runs a change in a transaction: one at a time in the whole fleet, as they are on SQLite, because each
// reads what the others wrote, and they are rare; but for those that lock the rows that they decide by.
func (e *fleet) write(ctx context.Context, s *Store, c *change) error {
	operation := newID("op_")
	return fleetErrorOr(e.until(ctx, func(ctx context.Context) error {
		return e.pool.With(ctx, func(pg *postgres.Conn) error {
			return e.attempt(ctx, s, c, fleetConn{pg}, operation)
		})
	}))
}

func (e *fleet) attempt(ctx context.Context, s *Store, c *change, conn fleetConn, operation string) error {
	isOver := false
	defer func() {
		if !isOver {
			conn.rollback()
		}
	}()
	t, err := e.beginChange(ctx, s, c, conn, operation)
	if err != nil || t == nil { // nil: the attempt before was committed, and f has run in it
		return err
	}
	if err := c.f(t); err != nil {
		if repeatable(t.failure) {
			return t.failure
		}
		return answered{err}
	}
	if t.failure == nil {
		err = e.forgetOperations(t)
	}
	if err = cmpOr(t.failure, err); err != nil { // else the server would undo it and call that committed
		return err
	}
	words := `SELECT durable(); COMMIT`
	if !c.durable {
		words = `SET LOCAL synchronous_commit = off; COMMIT`
	}
	err = conn.Run(context.WithoutCancel(ctx), words)
	isOver, c.alerted = err == nil, t.hasAlerted
	return err
}

// beginChange begins a change's transaction, by the server's time; nil: it was committed before.
func (e *fleet) beginChange(ctx context.Context, s *Store, c *change, conn fleetConn, operation string) (*tx,
	error) {
	words := `BEGIN; SELECT FROM locks WHERE name = 'ledger' FOR UPDATE`
	if c.locksRows {
		words = `BEGIN`
	}
	if err := conn.Run(ctx, words); err != nil {
		return nil, err
	}
	done, err := conn.Query(ctx, postgres.Statement{Query: `INSERT INTO operations VALUES (?, change_time())
		ON CONFLICT (id) DO NOTHING RETURNING at`, Args: []any{operation}})
	if err != nil {
		return nil, err
	}
	row := answerRows(done)
	var now int64
	if errors.Is(row.next(), io.EOF) {
		return nil, nil
	}
	err = row.Scan(&now)
	t := &tx{ctx: context.WithoutCancel(ctx), conn: conn, fleet: e, known: &known{newest: now},
		Now: fromMicros(now), contentQuota: s.contentQuota, changes: true}
	return t, err
}

// repeatable reports whether a change that came to such an error is to be made again: it was undone because
// of others', or its connection is gone and the transaction with it.
func repeatable(err error) bool {
	var f *postgres.Failure
	if !errors.As(err, &f) {
		return false
	}
	switch f.Kind {
	case postgres.Again, postgres.Uncertain, postgres.Unreachable:
		return true
	case postgres.Violated: // a question was asked while a payment gave its approval back
		return f.Constraint == "approvals_open"
	}
	return false
}

const (
	// forgetOperationsEvery is how seldom a process looks for old operations, unless there are more.
	forgetOperationsEvery = time.Hour
	// operationsKept is how long an operation is known: longer than anybody repeats one.
	operationsKept = 24 * time.Hour
	// operationsForgotten bounds what one change deletes, for it waits for that.
	operationsForgotten = 1000
)

// forgetOperations deletes the ids of changes that nobody repeats any more.
func (e *fleet) forgetOperations(t *tx) error {
	e.mu.Lock()
	isDue := time.Since(e.swept) >= forgetOperationsEvery
	if isDue {
		e.swept = time.Now()
	}
	e.mu.Unlock()
	if !isDue {
		return nil
	}
	n, err := t.change(
		`DELETE FROM operations WHERE id IN (SELECT id FROM operations WHERE at < ? ORDER BY at LIMIT ?
		FOR UPDATE SKIP LOCKED)`,
		micros(t.Now.Add(-operationsKept)),
		operationsForgotten,
	)
	if n == operationsForgotten {
		e.mu.Lock()
		e.swept = time.Time{}
		e.mu.Unlock()
	}
	return err
}

// lock takes a row of the table locks until the end of a change; on SQLite nobody else writes anyway.
func (t *tx) lock(name string) error {
	if t.fleet == nil {
		return nil
	}
	_, err := t.exec(`SELECT FROM locks WHERE name = ? FOR UPDATE`, name)
	return err
}

// lockChain takes this home's chain before rows that others lock behind it. On SQLite nobody else writes.
func (t *tx) lockChain() error {
	if t.fleet == nil {
		return nil
	}
	_, err := t.exec(`SELECT FROM writers WHERE name = ? FOR UPDATE`, t.fleet.Writer)
	return err
}
