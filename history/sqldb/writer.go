package sqldb

import (
	"context"
	"crypto/rand"
	"runtime"
	"slices"
	"sync"
	"time"

	"x402-wallet/x402"
)

// Changes of this process that come at the same time share a transaction, and so the flush of the disk at its
// end. Each change is whole or nothing within its transaction, sees those before it, and has its own answer;
// none has one before the commit is durable. While one transaction is written, the next changes wait in the
// queue and make the next one.

// change is one of them.
type change struct {
	f         func(*Tx) error
	since     time.Time
	err       error
	panicked  any
	committed []func()      // called once it is durable
	leads     bool          // its caller commits, for all that wait
	wake      chan struct{} // it leads, or has its answer
}

// writer holds the changes that wait; if one of them leads, it is the first.
type writer struct {
	mu      sync.Mutex
	waiting []*change
	working bool // one of the callers commits
}

// maxBatch bounds how many changes share a transaction, so that other processes do not wait for long.
const maxBatch = 64

// Write calls f with a transaction that is durable when Write returns nil. A caller who leaves, or whose time
// is over, before its transaction has begun gets LEDGER_UNAVAILABLE, and nothing was written; from then on it
// takes its few milliseconds to the end. What f returns is returned unchanged, and then nothing of f was
// written. f may be called more than once: what it sets outside, it sets anew each time.
func (db *DB) Write(ctx context.Context, f func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return OutOfTime("begin", err)
	}
	c := &change{f: f, since: time.Now(), wake: make(chan struct{}, 1)}
	db.writer.join(c)
	select {
	case <-c.wake:
	case <-ctx.Done():
		if db.writer.leave(c) {
			return OutOfTime("wait for the ledger", ctx.Err())
		}
		<-c.wake // it is being written
	}
	if c.leads {
		runtime.Gosched() // callers who run already may have something to write, too
		db.commitNext(ctx, c)
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	if c.err == nil {
		for _, f := range c.committed {
			f()
		}
	}
	return c.err
}

func (q *writer) join(c *change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	if !q.working {
		q.passOn()
	}
}

// passOn makes the first caller in the queue the leader, who commits, if anybody waits. It is called with mu
// held, when nobody commits.
func (q *writer) passOn() {
	q.working = len(q.waiting) > 0
	if q.working {
		q.waiting[0].leads = true
		q.waiting[0].wake <- struct{}{}
	}
}

// leave takes a change out of the queue, unless it is being written.
func (q *writer) leave(c *change) bool {
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

// Waiting is how many changes wait in the queue.
func (db *DB) Waiting() int {
	db.writer.mu.Lock()
	defer db.writer.mu.Unlock()
	return len(db.writer.waiting)
}

// take takes the changes that are committed now out of the queue: the leader's first.
func (q *writer) take() []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxBatch)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// commitNext commits the changes that wait, its caller's first, and lets the next caller in the queue do the
// same.
func (db *DB) commitNext(ctx context.Context, first *change) {
	w := Wait{ctx: ctx, until: first.since.Add(db.wait)}
	var batch []*change
	err := ctx.Err()
	if err != nil {
		err = OutOfTime("wait for the ledger", err)
	} else {
		batch, err = db.commit(w)
	}
	if batch == nil { // it did not come to its turn, and the others wait on for theirs
		first.err = err
		db.writer.leave(first)
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
	db.writer.mu.Lock()
	defer db.writer.mu.Unlock()
	db.writer.passOn()
}

// commit writes a batch, again where the database failed in a way that passes. With an error nothing of it
// was written, unless the last commit got no answer.
func (db *DB) commit(w Wait) (batch []*change, err error) {
	unlock, err := db.engine.Lock(w)
	if err != nil {
		return nil, err
	}
	defer unlock()
	name := rand.Text()
	for {
		batch, err = db.attempt(name, batch)
		if err == nil || !db.engine.Retry(err) {
			return batch, db.engine.Classify("commit", err)
		}
		if over := w.over("begin"); over != nil {
			return batch, db.engine.GaveUp(over, err)
		}
		time.Sleep(retryPause)
	}
}

// attempt writes a batch in one transaction. If batch is nil it is taken from the queue, once nobody else can
// write: until then each of those who wait can leave.
func (db *DB) attempt(name string, batch []*change) (_ []*change, err error) {
	ctx, cancel := db.engine.Patience()
	defer cancel()
	sqlTx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return batch, err
	}
	defer func() { _ = sqlTx.Rollback() }() // after a commit there is nothing to roll back
	t := &Tx{ctx: ctx, conn: sqlTx, engine: db.engine}
	now, isCommitted, err := db.engine.Begin(t, name)
	if err != nil || isCommitted {
		return batch, err
	}
	if batch == nil {
		batch = db.writer.take()
	}
	if now.IsZero() {
		now = db.now()
	}
	for _, c := range batch {
		t.Now = now.UTC()
		if err := t.apply(c, len(batch) > 1); err != nil {
			return batch, err
		}
	}
	return batch, sqlTx.Commit()
}

// errRollback rolls back a transaction whose only change has its answer already.
var errRollback = x402.Errorf(x402.LedgerUnavailable, "the change was rolled back")

// apply makes one change, and undoes it if it failed. Its error is the database's, which ends the whole
// batch.
func (t *Tx) apply(c *change, several bool) error {
	c.err, c.panicked, c.committed = nil, nil, nil
	t.change = c
	if !several {
		c.run(t)
		if t.failure == nil && (c.err != nil || c.panicked != nil) {
			return errRollback
		}
		return t.failure
	}
	if _, err := t.Exec(`SAVEPOINT one`); err != nil {
		return err
	}
	c.run(t)
	if t.failure != nil {
		return t.failure
	}
	if c.err != nil || c.panicked != nil {
		t.Shared = nil
		if _, err := t.Exec(`ROLLBACK TO SAVEPOINT one`); err != nil {
			return err
		}
	}
	_, err := t.Exec(`RELEASE SAVEPOINT one`)
	return err
}

func (c *change) run(t *Tx) {
	defer func() { c.panicked = recover() }() // it is the caller's
	c.err = c.f(t)
}
