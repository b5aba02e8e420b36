// Package postgres is the wire to a PostgreSQL server: connections, queries with their answers, and what an
// error means. It knows nothing of payments.
//
// What must stay true: nothing is ever sent twice by this package. Whether a statement was done whose answer
// was lost only its caller can find out, by saying the same again where that is safe (Uncertain). So the
// protocol is spoken through pgconn and not through database/sql, which runs a statement up to three times.
//
// The files: postgres.go (connections), query.go (queries and answers),
// prepare.go (what is asked again), record.go (rows that came as text), failure.go (what an error means).
package postgres

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// connectTimeout bounds one attempt at all the servers of the URL.
	connectTimeout = 5 * time.Second
	// patience bounds one statement, so that a server that does not answer any more is noticed: longer than
	// the server itself lets one run.
	patience = 10 * time.Second
	// maxConnections bounds those of one process: hundreds of processes share a server.
	maxConnections = 4
	// idleTime is how long a connection that nobody uses stays open.
	idleTime = 5 * time.Minute
	// checkedAfter is how long a connection is taken for one that the server still has.
	checkedAfter = time.Second
)

// Options say which server.
type Options struct {
	// URL is libpq's, without a password.
	URL string
	// Password is asked before each connection, as tokens expire; nil: none is needed.
	Password func(ctx context.Context) (string, error)
	// Check is asked about each new connection before it is used; nil: nothing is.
	Check func(ctx context.Context, c *Conn) error
	// Dial replaces net.Dialer's for tests; nil: that one.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Pool is a few connections. It opens none before the first is lent.
type Pool struct {
	o      Options
	config *pgconn.Config
	slots  chan struct{}
	// isPlain: nothing is prepared, because what is between here and the server does not keep it
	isPlain atomic.Bool

	mu     sync.Mutex
	idle   []*Conn // the last one was used last
	closed bool
}

// New reads the options, and connects to nothing.
func New(o Options) (*Pool, error) {
	config, err := pgconn.ParseConfig(o.URL)
	if err != nil {
		return nil, &Failure{Kind: Unreachable, Doing: "read the ledger's URL", err: err}
	}
	config.ConnectTimeout = connectTimeout
	// and nothing of PGOPTIONS: who starts the program says by the URL alone what the server does
	config.RuntimeParams = map[string]string{"application_name": "x402-wallet", "search_path": "x402"}
	if o.Dial != nil {
		config.DialFunc = o.Dial
	}
	return &Pool{o: o, config: config, slots: make(chan struct{}, maxConnections)}, nil
}

// Conn is one connection, for one goroutine at a time.
type Conn struct {
	*pgconn.PgConn
	pool  *Pool
	used  time.Time
	plans map[string]*planned // by query
}

// With lends f a connection, and waits for one if it must. A connection on which something went wrong is
// closed.
func (p *Pool) With(ctx context.Context, f func(*Conn) error) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return &Failure{Kind: Unreachable, Doing: "wait for a connection to the ledger", err: ctx.Err()}
	}
	defer func() { <-p.slots }()
	c, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	isGood := false // also where f panics
	defer func() { p.release(c, isGood) }()
	err = f(c)
	isGood = !c.IsClosed() && c.TxStatus() == 'I'
	return err
}

func (p *Pool) acquire(ctx context.Context) (*Conn, error) {
	for {
		p.mu.Lock()
		last := len(p.idle) - 1
		if p.closed {
			p.mu.Unlock()
			return nil, &Failure{Kind: Unreachable, Doing: "use the ledger", err: errClosed}
		}
		if last < 0 {
			p.mu.Unlock()
			return p.connect(ctx)
		}
		c := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		unused := time.Since(c.used)
		//nolint:staticcheck // it costs no round trip; what it misses is found by who says the same again
		if unused < checkedAfter || (unused < idleTime && c.CheckConn() == nil) {
			return c, nil
		}
		c.close()
	}
}

func (p *Pool) connect(ctx context.Context) (*Conn, error) {
	config := p.config
	ctx, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	if p.o.Password != nil {
		password, err := p.o.Password(ctx)
		if err != nil {
			return nil, &Failure{Kind: Unreachable, Doing: "ask for the ledger's password", err: err}
		}
		config = config.Copy()
		config.Password = password
	}
	open, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, connectFailure(err)
	}
	c := &Conn{PgConn: open, pool: p}
	if p.o.Check != nil {
		if err := p.o.Check(ctx, c); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (p *Pool) release(c *Conn, isGood bool) {
	p.mu.Lock()
	keep := isGood && !p.closed
	if keep {
		c.used = time.Now()
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// Forget closes the idle connections: those that are made next find out what the server is by now.
func (p *Pool) Forget() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
}

// Close closes all that is idle; what is lent is closed when it comes back.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Forget()
}

// close says goodbye, but does not wait for a server that does not answer.
func (c *Conn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.PgConn.Close(ctx)
}
