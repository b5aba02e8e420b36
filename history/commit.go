package history

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"x402-wallet/x402"
)

// Changes of this process that come at the same time share a transaction, and so SQLite's flush of the log
// at its end. Each change is whole or nothing within its transaction, sees those before it, and has its own
// answer; none has one before the commit is on the disk. While one transaction is written, the next changes
// wait in the queue and make the next one.

// change is one of them.
type change struct {
	f        func(*tx) error
	durable  bool // in a fleet: the server's disk is waited for
	isSingle bool // writes by one statement, its last, which SQLite undoes by itself
	// in a fleet: it locks the rows that it decides by, or no rows of others matter to it, so that it need
	// not wait for other changes
	locksRows bool
	quota     int64 // as Options.ContentQuota of its Store
	since     time.Time
	err       error
	panicked  any
	alerted   bool          // it wrote an alert
	leads     bool          // its caller commits, for all that wait
	wake      chan struct{} // it leads, or has its answer
}

// commitQueue holds the changes that wait; if one of them leads, it is the first.
type commitQueue struct {
	mu      sync.Mutex
	waiting []*change
	working bool // one of the callers commits
}

// maxBatch bounds how many share a transaction, so that other processes do not wait for long.
const maxBatch = 64

// tx runs f in a durable transaction. A caller who leaves, or whose time is over, before its
// transaction has begun gets LEDGER_UNAVAILABLE, and nothing was written; from then on it takes its
// few milliseconds to the end. What f returns is returned unchanged, and then nothing of f was
// written; an error of the database is LEDGER_UNAVAILABLE, LEDGER_CORRUPT or INTERNAL (ledgerError).
func (s *Store) tx(ctx context.Context, f func(*tx) error) error {
	return s.enqueue(ctx, &change{f: f, durable: true})
}

// txSingle is txRows for an f that writes by one statement, after which it does nothing that can fail: it
// needs no savepoint.
func (s *Store) txSingle(ctx context.Context, f func(*tx) error) error {
	return s.enqueue(ctx, &change{f: f, durable: true, isSingle: true, locksRows: true})
}

// txRows is tx for an f that in a fleet locks the rows that it decides by.
func (s *Store) txRows(ctx context.Context, f func(*tx) error) error {
	return s.enqueue(ctx, &change{f: f, durable: true, locksRows: true})
}

// commitNoSync is tx for an f that in a fleet need not wait for the server's disk.
func (s *Store) commitNoSync(ctx context.Context, f func(*tx) error) error {
	return s.enqueue(ctx, &change{f: f})
}

func (s *Store) enqueue(ctx context.Context, c *change) error {
	if err := ctx.Err(); err != nil {
		return outOfTime("begin", err)
	}
	if s.fleet != nil {
		return s.tellIf(c, s.fleet.write(ctx, s, c))
	}
	c.quota, c.since, c.wake = s.contentQuota, time.Now(), make(chan struct{}, 1)
	s.queue.join(c)
	select {
	case <-c.wake:
	case <-ctx.Done():
		if s.queue.leave(c) {
			return outOfTime("wait for the ledger", ctx.Err())
		}
		<-c.wake // it is being written
	}
	if c.leads {
		runtime.Gosched() // whoever runs already may have something to write, too
		s.commitNext(ctx, c)
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	return s.tellIf(c, c.err)
}

// tellIf tells of a change that is written, if it wrote an alert. It returns its error.
func (s *Store) tellIf(c *change, err error) error {
	if err == nil && c.alerted && s.alerted != nil {
		s.alerted()
	}
	return err
}

func (q *commitQueue) join(c *change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	if !q.working {
		q.passOn()
	}
}

// passOn makes the first caller in the queue the leader, who commits, if anybody waits. It is called with mu
// held, when nobody commits.
func (q *commitQueue) passOn() {
	q.working = len(q.waiting) > 0
	if q.working {
		q.waiting[0].leads = true
		q.waiting[0].wake <- struct{}{}
	}
}

// leave takes a change out of the queue, unless it is being written.
func (q *commitQueue) leave(c *change) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if c.leads {
		q.passOn()
	}
	return true
}

// take takes what is committed now out of the queue: the leader's change first.
func (q *commitQueue) take() []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxBatch)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// commitNext commits what waits, its caller's change first, and lets the next caller in the queue
// do the same.
func (s *Store) commitNext(ctx context.Context, first *change) {
	p := patience{ctx: ctx, until: first.since.Add(lockWait)}
	var batch []*change
	err := ctx.Err()
	if err != nil {
		err = outOfTime("wait for the ledger", err)
	} else {
		batch, err = s.commit(p)
	}
	if batch == nil { // it did not come to its turn, and the others wait on for theirs
		first.err = err
		s.queue.leave(first)
		return
	}
	for _, c := range batch {
		if c.err == nil {
			c.err = err
		}
	}
	for _, c := range batch[1:] {
		c.wake <- struct{}{}
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.passOn()
}

// commit writes a batch. It is taken from the queue when nobody else can write any more: until then
// each of those who wait can leave. With an error nothing of it was written.
func (s *Store) commit(p patience) (batch []*change, err error) {
	unlock, err := s.writeLock.lockFor(p)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var known known
	err = s.write.with(p.ctx, func(conn *conn) error {
		return conn.transaction(p, beginWriting, func() error {
			if err := conn.logInPlace(s.home); err != nil {
				return err
			}
			if err := s.takesWrites(conn, &known); err != nil {
				return err
			}
			batch = s.queue.take()
			for _, c := range batch {
				if err := s.apply(conn, &known, c, len(batch) > 1); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return batch, err
}

// takesWrites refuses a ledger of another format, and one that moves.
func (s *Store) takesWrites(conn *conn, known *known) error {
	if s.moves {
		return nil
	}
	t := &tx{ctx: context.Background(), conn: conn, known: known}
	return t.sameFormat()
}

// apply runs one change, and undoes it if it failed. Its error is the database's, which ends the
// whole batch: SQLite may have rolled back everything then.
func (s *Store) apply(conn *conn, known *known, c *change, several bool) error {
	before := *known
	t := &tx{ctx: context.Background(), conn: conn, known: known, Now: s.now().UTC(),
		contentQuota: c.quota, followed: &s.followed, moves: s.moves}
	switch {
	case several && c.isSingle:
		c.run(t)
		return t.failure
	case !several:
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
		*known = before
		known.sealed = nil // the change may have carried it on
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
	c.alerted = t.hasAlerted
}
