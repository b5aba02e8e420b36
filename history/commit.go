package history

import (
	"context"
	"sync"

	"x402-wallet/x402"
)

// Changes of this process that come at the same time share a transaction: waiting for the disk
// takes as long for many as for one. Each is whole or nothing within it, sees those before it, and
// has its own answer; none has one before the commit.

// change is one of them.
type change struct {
	f        func(*Tx) error
	light    bool // need not outlive a power cut
	err      error
	trouble  bool // with the ledger, and no answer of its
	panicked any
	leads    chan bool // true: its caller commits, for all that wait; false: it has its answer
}

// changes are those that wait.
type changes struct {
	mu      sync.Mutex
	waiting []*change
	working bool // one of the callers commits
}

// together bounds how many share a transaction, so that other processes do not wait for long.
const together = 64

// tx runs f in a durable transaction. A caller that leaves while its turn is near does not stop it.
func (s *Store) tx(ctx context.Context, f func(*Tx) error) error { return s.change(ctx, f, false) }

// lightly runs f in a transaction that survives the death of the process, but perhaps not of the
// machine.
func (s *Store) lightly(ctx context.Context, f func(*Tx) error) error { return s.change(ctx, f, true) }

func (s *Store) change(ctx context.Context, f func(*Tx) error, light bool) error {
	if err := ctx.Err(); err != nil {
		return ledgerError("begin", err)
	}
	c := &change{f: f, light: light, leads: make(chan bool, 1)}
	s.changes.mu.Lock()
	s.changes.waiting = append(s.changes.waiting, c)
	lead := !s.changes.working
	s.changes.working = true
	s.changes.mu.Unlock()
	if lead || <-c.leads {
		s.commitNext()
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.err
}

// commitNext commits what waits, its caller's change first, and lets the next one who waits do the
// same.
func (s *Store) commitNext() {
	s.changes.mu.Lock()
	n := min(len(s.changes.waiting), together)
	list := s.changes.waiting[:n:n]
	s.changes.waiting = s.changes.waiting[n:]
	s.changes.mu.Unlock()
	s.commit(list)
	for _, c := range list[1:] {
		c.leads <- false
	}
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if len(s.changes.waiting) > 0 {
		s.changes.waiting[0].leads <- true
	} else {
		s.changes.waiting, s.changes.working = nil, false
	}
}

// commit gives each of the changes its answer.
func (s *Store) commit(list []*change) {
	err := s.inTurn(list)
	for _, c := range list {
		if c.err == nil {
			c.err = err
		}
	}
}

func (s *Store) inTurn(list []*change) error {
	// many callers' work; and a query that is broken off takes the whole transaction with it
	ctx := context.Background()
	give, err := s.turns.take(ctx)
	if err != nil {
		return ledgerError("wait for the ledger", err)
	}
	defer give()
	light := true
	for _, c := range list {
		light = light && c.light
	}
	return ledgerError("begin", s.write.with(ctx, func(conn *conn) error {
		if light {
			if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = NORMAL`); err != nil {
				conn.broken = true
				return err
			}
			defer func() {
				if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = FULL`); err != nil {
					conn.broken = true // never to be used for anything that has to last
				}
			}()
		}
		return conn.transaction(`BEGIN IMMEDIATE`, func() error {
			for _, c := range list {
				if err := s.step(conn, c, len(list) > 1); err != nil {
					return err
				}
			}
			return nil
		})
	}))
}

// step runs one change and undoes it if it failed. Its error is trouble with the ledger, which ends
// them all: SQLite may have undone the whole transaction then.
func (s *Store) step(conn *conn, c *change, several bool) error {
	t := &Tx{ctx: context.Background(), conn: conn, Now: s.now().UTC()}
	if !several {
		if c.run(t); c.err != nil || c.panicked != nil {
			return errUndo
		}
		return nil
	}
	if _, err := t.exec(`SAVEPOINT one`); err != nil {
		return ledgerError("begin", err)
	}
	if c.run(t); c.trouble {
		return c.err
	}
	if c.err != nil || c.panicked != nil {
		if _, err := t.exec(`ROLLBACK TO one`); err != nil {
			return ledgerError("undo", err)
		}
	}
	_, err := t.exec(`RELEASE one`)
	return ledgerError("write the ledger", err)
}

// errUndo undoes a transaction whose only change has its answer already.
var errUndo = x402.Errorf(x402.LedgerUnavailable, "the change was undone")

func (c *change) run(t *Tx) {
	defer func() { c.panicked = recover() }() // it is the caller's
	err := c.f(t)
	c.err, c.trouble = ledgerError("write the ledger", err), err != nil && !isAnswer(err)
}
