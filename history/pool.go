package history

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// pool is a few connections to the ledger that stay open, each with the statements that it has met:
// SQLite takes longer to compile most of these queries than to run them. database/sql keeps
// statements too, but compiles none for a connection that is inside a transaction, where all of
// these begin; so a transaction here is its words BEGIN and COMMIT on a connection of its own.
type pool struct {
	db     *sql.DB
	places chan struct{} // one for each connection there may be
	mu     sync.Mutex
	idle   []*conn // the last one was used last
	closed bool
}

// conn is one connection, for one goroutine at a time.
type conn struct {
	*sql.Conn
	stmts  map[string]*sql.Stmt
	broken bool // not to be used again
}

// maxStatements bounds what a connection keeps; the queries of this package are fewer, but for
// combinations of filters.
const maxStatements = 100

func newPool(dsn string, most int) (*pool, error) {
	db, err := sql.Open("sqlite", dsn)
	return &pool{db: db, places: make(chan struct{}, most)}, err
}

// with lends f a connection, and waits for one if it must.
func (p *pool) with(ctx context.Context, f func(*conn) error) error {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.places }()
	c, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer p.give(c)
	return f(c)
}

func (p *pool) take(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		c := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	fresh, err := p.db.Conn(ctx)
	return &conn{Conn: fresh, stmts: map[string]*sql.Stmt{}}, err
}

func (p *pool) give(c *conn) {
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

// stmt is the compiled query; nil where that cannot be had, and then running the query as it is
// says why. A PRAGMA must not come here: SQLite does most of what it says when it is compiled, and
// nothing when it is run again.
func (c *conn) stmt(ctx context.Context, query string) *sql.Stmt {
	stmt := c.stmts[query]
	if stmt == nil && len(c.stmts) < maxStatements {
		var err error
		if stmt, err = c.PrepareContext(ctx, query); err != nil {
			return nil
		}
		c.stmts[query] = stmt
	}
	return stmt
}

func (c *conn) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := c.stmt(ctx, query); stmt != nil { //nolint:sqlclosecheck // closed with its connection
		return stmt.ExecContext(ctx, args...)
	}
	return c.ExecContext(ctx, query, args...)
}

// transaction runs f between begin and COMMIT. What fails, or panics, is undone.
func (c *conn) transaction(begin string, f func() error) error {
	done := false
	defer func() {
		if !done {
			c.undo()
		}
	}()
	if _, err := c.exec(context.Background(), begin); err != nil {
		return ledgerError("begin", err)
	}
	if err := f(); err != nil {
		return err
	}
	_, err := c.exec(context.Background(), `COMMIT`)
	done = err == nil
	return ledgerError("commit", err)
}

// undo ends a transaction. Where there is none, as SQLite may have ended it by itself, it says
// SQLITE_ERROR; after any other trouble the connection goes, and the transaction with it.
func (c *conn) undo() {
	_, err := c.exec(context.Background(), `ROLLBACK`)
	var e *sqlite.Error
	if err != nil && !(errors.As(err, &e) && e.Code() == sqlite3.SQLITE_ERROR) {
		c.broken = true
	}
}
