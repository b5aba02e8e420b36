package history

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"x402-wallet/x402"
)

// pool is a few connections to the ledger that stay open, each with the statements that it has
// compiled: SQLite takes longer to compile most of these queries than to run them. Without it a
// wallet makes 0.4 times as many payments a second (BenchmarkPayParallel). database/sql keeps
// statements too, but compiles none for a connection that is inside a transaction, where all of
// these begin; so a transaction here is the words BEGIN and COMMIT on a connection of its own.
type pool struct {
	db     *sql.DB
	slots  chan struct{} // one for each connection there may be
	mu     sync.Mutex
	idle   []*conn // the last one was used last
	closed bool
}

// conn is one connection, for one goroutine at a time.
type conn struct {
	*sql.Conn
	stmts  map[string]statement
	named  []driver.NamedValue // the last query's
	broken bool                // not to be used again
	log    os.FileInfo         // ledger.db-wal when this connection wrote to it first
}

// The two kinds of transactions.
const beginReading, beginWriting = `BEGIN`, `BEGIN IMMEDIATE`

// maxStatements bounds what a connection keeps; the queries of this package are fewer, but for
// combinations of filters.
const maxStatements = 100

func newPool(dsn string, size int) (*pool, error) {
	db, err := sql.Open("sqlite", dsn)
	return &pool{db: db, slots: make(chan struct{}, size)}, err
}

// with lends f a connection, and waits for one if it must.
func (p *pool) with(ctx context.Context, f func(*conn) error) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return outOfTime("wait for a connection to the ledger", ctx.Err())
	}
	return p.lend(ctx, f)
}

// tryWith lends f a connection, if it need not wait for one.
func (p *pool) tryWith(ctx context.Context, f func(*conn) error) (lent bool, err error) {
	select {
	case p.slots <- struct{}{}:
		return true, p.lend(ctx, f)
	default:
		return false, nil
	}
}

// lend lends f a connection, for the slot that its caller took.
func (p *pool) lend(ctx context.Context, f func(*conn) error) error {
	defer func() { <-p.slots }()
	c, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	defer p.release(c)
	return f(c)
}

func (p *pool) acquire(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	closed, last := p.closed, len(p.idle)-1
	if last >= 0 {
		c := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	if closed {
		return nil, x402.Errorf(x402.LedgerUnavailable, "the ledger is closed")
	}
	var fresh *sql.Conn
	err := notBusy(patient(ctx), "open the ledger", func() (err error) {
		fresh, err = p.db.Conn(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &conn{Conn: fresh, stmts: map[string]statement{}}, nil
}

func (p *pool) release(c *conn) {
	p.mu.Lock()
	keep := !c.broken && !p.closed
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// close closes all that is idle; what is lent is closed when it comes back.
func (p *pool) close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
	return p.db.Close()
}

func (c *conn) close() {
	for _, stmt := range c.stmts {
		_ = stmt.Close()
	}
	_ = c.Raw(func(any) error { return driver.ErrBadConn }) // closed, not kept by database/sql
	c.Conn.Close()
}

// notBusy does something again while another process holds the ledger. SQLite itself waits only for a
// moment (busyWait), because it does not notice that a caller left.
func notBusy(p patience, doing string, f func() error) error {
	for {
		err := f()
		var e *sqlite.Error
		if !errors.As(err, &e) ||
			(e.Code()&0xff != sqlite3.SQLITE_BUSY && e.Code()&0xff != sqlite3.SQLITE_LOCKED) {
			return ledgerError(doing, err)
		}
		if err := p.over(doing); err != nil {
			return err
		}
	}
}

// reading takes the snapshot that a reading transaction goes by: from then on it waits for nobody.
func (c *conn) reading() error {
	var n int
	return queryRow(context.Background(), c, `SELECT count(*) FROM sqlite_schema WHERE rowid = 0`).Scan(&n)
}

// transaction runs f between begin and COMMIT, and waits for the ledger before f only. What fails, or
// panics, is rolled back.
func (c *conn) transaction(p patience, begin string, f func() error) error {
	done := false
	defer func() {
		if !done {
			c.rollback()
		}
	}()
	begun := false
	err := notBusy(p, "begin", func() (err error) {
		if !begun {
			_, err = c.exec(context.Background(), begin)
			begun = err == nil
		}
		if err == nil && begin == beginReading {
			err = c.reading()
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	_, err = c.exec(context.Background(), `COMMIT`)
	done = err == nil
	return ledgerError("commit", err)
}

// logInPlace says whether ledger.db-wal still is the file that this connection writes to. SQLite keeps it
// while anybody has the ledger open. Where it was removed or replaced all the same, commits would go into a
// file that no other process finds. It looks at the file's name alone and opens nothing.
func (c *conn) logInPlace(home string) error {
	const name = FileName + "-wal"
	info, err := os.Lstat(filepath.Join(home, name))
	switch {
	case err != nil:
	case c.log == nil:
		c.log = info
		return nil
	case os.SameFile(c.log, info):
		return nil
	default:
		err = errors.New("it was replaced")
	}
	return x402.Errorf(x402.LedgerUnavailable, "look for %s: %w", name, err).
		WithHint("files of the ledger were taken away: stop all processes of this wallet, " +
			"restore a backup, and run x402-wallet history verify")
}

// rollback ends a transaction. Where there is none, because SQLite has ended it by itself, it says
// SQLITE_ERROR; after any other trouble the connection goes, and the transaction with it.
func (c *conn) rollback() {
	_, err := c.exec(context.Background(), `ROLLBACK`)
	var e *sqlite.Error
	if err != nil && (!errors.As(err, &e) || e.Code() != sqlite3.SQLITE_ERROR) {
		c.broken = true
	}
}

// ledgerError says what an error of the database means: a damaged file stops payments until a
// person looks, a mistake in our own SQL is a defect of this program, anything else is trouble of
// this moment. It is called where the database answers and nowhere else, so that the answers of a
// transaction pass unchanged. The file is never repaired or replaced.
func ledgerError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return outOfTime(doing, err)
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
	}
	switch e.Code() & 0xff { // the primary code (https://www.sqlite.org/rescode.html)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(doing, err)
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE:
		return x402.Errorf(x402.Internal, "%s: %w", doing, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return heldTooLong(doing)
	case sqlite3.SQLITE_INTERRUPT: // whose caller left
		return outOfTime(doing, err)
	case sqlite3.SQLITE_FULL:
		return x402.Errorf(x402.LedgerUnavailable, "%s: the disk is full: %w", doing, err).
			WithHint("make room on the disk of the wallet's home, then make the same call again")
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err).
			WithHint("the disk of the wallet's home failed, or files of the ledger were taken away: see to " +
				"it, restart the wallet's processes, and run x402-wallet history verify")
	case sqlite3.SQLITE_READONLY:
		return x402.Errorf(x402.LedgerUnavailable, "%s: its files cannot be written", doing).
			WithHint("the home and its files must be yours to write, on a disk that is not mounted read-only")
	}
	return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
}

func damaged(doing string, err error) error {
	return x402.Errorf(x402.LedgerCorrupt, "%s: the ledger is damaged: %w", doing, err).
		WithHint("stop every process of this wallet, keep a copy of ledger.db, ledger.db-wal and " +
			"ledger.db-shm, and restore a backup; nothing is paid until then")
}
