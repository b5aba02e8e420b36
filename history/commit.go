package history

import (
	"context"
	"sync"

	"x402-wallet/x402"
)

// Changes of this process that come at the same time share a transaction: waiting for the disk
// takes as long for many as for one. Without it a wallet makes a quarter of the payments a second
// (BenchmarkPayParallel). Each change is whole or nothing within its transaction, sees those before
// it, and has its own answer; none has one before the commit.

// change is one of them.
type change struct {
	f        func(*tx) error
	noSync   bool // need not outlive a power cut
	err      error
	panicked any
	leads    chan bool // true: its caller commits, for all that wait; false: it has its answer
}

// commitQueue holds the changes that wait.
type commitQueue struct {
	mu      sync.Mutex
	waiting []*change
	working bool // one of the callers commits
}

// maxBatch bounds how many share a transaction, so that other processes do not wait for long.
const maxBatch = 64

// tx runs f in a durable transaction. A caller that leaves while its turn is near does not stop it.
// What f returns is returned unchanged, and then nothing of f was written; an error of the database
// is LEDGER_UNAVAILABLE, LEDGER_CORRUPT or INTERNAL (ledgerError).
func (s *Store) tx(ctx context.Context, f func(*tx) error) error { return s.enqueue(ctx, f, false) }

// commitNoSync runs f in a transaction that survives the death of the process, but perhaps not of
// the machine.
func (s *Store) commitNoSync(ctx context.Context, f func(*tx) error) error {
	return s.enqueue(ctx, f, true)
}

func (s *Store) enqueue(ctx context.Context, f func(*tx) error, noSync bool) error {
	if err := ctx.Err(); err != nil {
		return ledgerError("begin", err)
	}
	c := &change{f: f, noSync: noSync, leads: make(chan bool, 1)}
	s.queue.mu.Lock()
	s.queue.waiting = append(s.queue.waiting, c)
	lead := !s.queue.working
	s.queue.working = true
	s.queue.mu.Unlock()
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
	s.queue.mu.Lock()
	n := min(len(s.queue.waiting), maxBatch)
	batch := s.queue.waiting[:n:n]
	s.queue.waiting = s.queue.waiting[n:]
	s.queue.mu.Unlock()
	if err := s.commit(batch); err != nil {
		for _, c := range batch {
			if c.err == nil {
				c.err = err
			}
		}
	}
	for _, c := range batch[1:] {
		c.leads <- false
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if len(s.queue.waiting) > 0 {
		s.queue.waiting[0].leads <- true
	} else {
		s.queue.waiting, s.queue.working = nil, false
	}
}

// commit writes a batch. With an error nothing of it was written.
func (s *Store) commit(batch []*change) error {
	// Many callers' work; and a query that is broken off takes the whole transaction with it.
	ctx := context.Background()
	unlock, err := s.writeLock.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	noSync := true
	for _, c := range batch {
		noSync = noSync && c.noSync
	}
	return s.write.with(ctx, func(conn *conn) error {
		if noSync {
			if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = NORMAL`); err != nil {
				conn.broken = true
				return ledgerError("begin", err)
			}
			defer func() {
				if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = FULL`); err != nil {
					conn.broken = true // never to be used for anything that has to last
				}
			}()
		}
		return conn.transaction(`BEGIN IMMEDIATE`, func() error {
			for _, c := range batch {
				if err := s.apply(conn, c, len(batch) > 1); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// apply runs one change, and undoes it if it failed. Its error is the database's, which ends the
// whole batch: SQLite may have rolled back everything then.
func (s *Store) apply(conn *conn, c *change, several bool) error {
	t := &tx{ctx: context.Background(), conn: conn, Now: s.now().UTC()}
	if !several {
		c.run(t)
		if c.err != nil || c.panicked != nil {
			return errRollback
		}
		return t.failure
	}
	if _, err := t.exec(`SAVEPOINT one`); err != nil {
		return err
	}
	c.run(t)
	if t.failure != nil {
		return t.failure
	}
	if c.err != nil || c.panicked != nil {
		if _, err := t.exec(`ROLLBACK TO one`); err != nil {
			return err
		}
	}
	_, err := t.exec(`RELEASE one`)
	return err
}

// errRollback rolls back a transaction whose only change has its answer already.
var errRollback = x402.Errorf(x402.LedgerUnavailable, "the change was rolled back")

func (c *change) run(t *tx) {
	defer func() { c.panicked = recover() }() // it is the caller's
	c.err = c.f(t)
}
