package history

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"x402-wallet/history/postgres"
)

// A fleet's ledger is the same Store on another engine: PostgreSQL, shared by the wallets of many machines.
// What only reads, and what is written outside the money path, is the same text of SQL in the same functions,
// each in a transaction of that server (view, write). The money path is a call for each step
// (fleetreserve.go, fleetsubmit.go, fleetfinish.go, postgres_functions.sql), because what locks a budget's
// row must not wait for the network in between.
//
// A change whose commit got no answer is made again, under the name that it had, and never looked up: only
// who says the same again waits for the first attempt, if that still runs.

//go:embed postgres.sql
var fleetTables string

//go:embed postgres_functions.sql
var fleetFunctions string

//go:embed postgres_roles.sql
var fleetRoles string

// fleetFormat is what these files make. A ledger of another one is refused.
const fleetFormat = "fleet 1"

// Fleet says where a fleet's ledger is, and who writes to it.
type Fleet struct {
	URL      string                                    // libpq's, without a password
	Password func(ctx context.Context) (string, error) // nil: none is needed
	// LedgerID is the ledger's, as the owner signed it; "": whichever is there.
	LedgerID string
	// Writer is whose audit chain this process writes: one home's, so that its checkpoint is on that chain.
	Writer string
	Agent  string // whose home that is; "": of a wallet without a name
	// Home is where the processes of one home know each other by locks: who of them has ended is known at
	// once, and not when it has said for a while that it lives no more. "": nowhere.
	Home string
	// Replication is what the owner demands of the server (fleetserver.go): "quorum", "async", or "none"; "":
	// nothing yet, see Store.Demand.
	Replication string
	// Dial replaces net.Dialer's for tests; nil: that one.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// fleet is the engine.
type fleet struct {
	Fleet
	pool *postgres.Pool
	now  func() time.Time // this machine's clock

	rules   atomic.Int64           // the version of GoBy; 0: none
	moved   atomic.Bool            // others are there
	beats   chan struct{}          // is full while this process says that it lives, or waits to
	demands atomic.Pointer[string] // Fleet.Replication, or what Demand said since

	mu       sync.Mutex // of what follows: never held while the server is asked
	self     string     // this process's id, "" before its first payment
	lock     *instance  // in its home; nil: it has none
	beating  chan struct{}
	ended    sync.WaitGroup
	driving  map[string]bool // payments of this process that are under way, by their ids
	beaten   time.Time       // when it last said that it lives
	swept    time.Time       // when it last looked for old operations (fleetwrite.go)
	tidied   time.Time       // and for too much content (fleetcontent.go)
	turns    map[string]chan struct{}
	closed   bool
	settle   time.Duration // settleFor
	aliveFor time.Duration // aliveFor
}

// uncertainFor bounds how long a step is repeated whose answer was lost, where its caller has no less.
const uncertainFor = 20 * time.Second

// CreateFleet makes a fleet's ledger in an empty schema, as the role that will own it.
func CreateFleet(ctx context.Context, f Fleet) (ledgerID string, err error) {
	pool, err := postgres.New(postgres.Options{URL: f.URL, Password: f.Password})
	if err != nil {
		return "", fleetError(err)
	}
	defer pool.Close()
	id := newID("led_")
	err = pool.With(ctx, func(c *postgres.Conn) error {
		return c.Run(ctx, `BEGIN; CREATE SCHEMA x402; SET LOCAL search_path =
			x402;`+fleetTables+fleetFunctions+fleetRoles+
			fleetIndex+
			`INSERT INTO meta VALUES ('format', '`+fleetFormat+`'), ('ledger_id', '`+id+`'); SELECT epoch();
				ANALYZE freezes, lifts, rules, budgets, logins, locks, meta, content_use; COMMIT`)
	})
	return id, fleetError(err)
}

// MakeFleet is CreateFleet where there is no ledger yet.
func MakeFleet(ctx context.Context, f Fleet) error {
	pool, err := postgres.New(postgres.Options{URL: f.URL, Password: f.Password})
	if err != nil {
		return fleetError(err)
	}
	defer pool.Close()
	isThere := func() (is bool, err error) {
		err = pool.With(ctx, func(c *postgres.Conn) error {
			return queryRow(ctx, fleetConn{c}, `SELECT to_regclass('x402.meta') IS NOT NULL`).Scan(&is)
		})
		return is, err
	}
	is, err := isThere()
	if err != nil || is {
		return fleetErrorOr(err)
	}
	if _, err = CreateFleet(ctx, f); err != nil {
		// somebody else was faster, perhaps one who was killed at it
		if is, _ := isThere(); is {
			return nil
		}
	}
	return fleetErrorOr(err)
}

// OpenFleet opens a fleet's ledger. It connects to nothing before the first question.
func OpenFleet(f Fleet, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &fleet{Fleet: f, now: o.Now, beats: make(chan struct{}, 1), settle: settleFor, aliveFor: aliveFor}
	pool, err := postgres.New(postgres.Options{URL: f.URL, Password: f.Password, Check: e.checkServer,
		Dial: f.Dial})
	if err != nil {
		return nil, fleetError(err)
	}
	e.pool = pool
	e.demands.Store(&f.Replication)
	return &Store{database: &database{now: o.Now, fleet: e, stores: 1}, contentQuota: o.ContentQuota,
		alerted: o.Alerted}, nil
}

func (e *fleet) close() error {
	e.mu.Lock()
	if e.beating != nil {
		close(e.beating)
		e.beating = nil
	}
	self, lock := e.self, e.lock
	e.self, e.lock, e.closed = "", nil, true
	e.mu.Unlock()
	e.ended.Wait()
	if self != "" {
		_ = e.sayEnded(self)
	}
	if lock != nil {
		lock.release()
	}
	e.pool.Close()
	return nil
}

// fleetConn is a connection to a fleet's server as a transaction has it.
type fleetConn struct{ *postgres.Conn }

func (c fleetConn) exec(ctx context.Context, query string, args ...any) (driver.Result, error) {
	return c.Query(ctx, postgres.Statement{Query: query, Args: args})
}

func (c fleetConn) query(ctx context.Context, query string, args ...any) (*rows, error) {
	answer, err := c.Query(ctx, postgres.Statement{Query: query, Args: args})
	if err != nil {
		return nil, err
	}
	return answerRows(answer), nil
}

func answerRows(answer *postgres.Rows) *rows {
	return &rows{answer: answer, values: make([]driver.Value, len(answer.Columns()))}
}

func (c fleetConn) rollback() { _ = c.Run(context.Background(), `ROLLBACK`) }

// view runs f on a consistent reading, by the server's time.
func (e *fleet) view(ctx context.Context, s *Store, f func(*tx) error) error {
	isAnswer := false
	err := e.pool.With(ctx, func(c *postgres.Conn) error {
		conn := fleetConn{c}
		t, err := e.begin(ctx, s, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
		if err != nil {
			return err
		}
		defer conn.rollback() // there is nothing to commit
		err = f(t)
		isAnswer = true
		return err
	})
	if isAnswer {
		return err
	}
	return fleetError(err)
}

func (e *fleet) begin(ctx context.Context, s *Store, c fleetConn, words string) (*tx, error) {
	if err := c.Run(ctx, words); err != nil {
		return nil, err
	}
	t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}, contentQuota: s.contentQuota}
	var now int64
	if err := queryRow(ctx, c, `SELECT ledger_now()`).Scan(&now); err != nil {
		return nil, err
	}
	t.Now, t.known.newest = fromMicros(now), now
	return t, nil
}

// answered is an error that repeating does not change.
type answered struct{ error }

func (a answered) Unwrap() error { return a.error }

// until repeats a step until its answer is known, it is refused, or the time is over: its caller's, or, where
// the step may have been done, uncertainFor. The step must be one that may be repeated. What has been sent is
// waited for, whatever becomes of ctx.
func (e *fleet) until(ctx context.Context, step func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncertainFor)
	defer cancel()
	for try := 0; ; try++ {
		err := step(bounded)
		var final answered
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final):
			return final.error
		case postgres.Is(err, postgres.Uncertain), postgres.Is(err, postgres.Unreachable):
			e.pool.Forget()
		case !postgres.Is(err, postgres.Again):
			return err
		}
		left := ctx.Done()
		if postgres.Is(err, postgres.Uncertain) {
			left = nil
		}
		longest := min(20<<min(try, 5), 500)
		pause := time.Duration(2+mathrand.IntN(longest)) * time.Millisecond //nolint:gosec // no secret
		select {
		case <-time.After(pause):
		case <-left:
			return err
		case <-bounded.Done():
			return err
		}
	}
}

// append appends to the chain of this process's home.
func (e *fleet) append(t *tx, payment int64, event, detail string) error {
	return t.row(`SELECT note(?, ?, ?, ?,
		?)`, e.Writer, micros(t.Now), payment, event, detail).Scan(&t.known.head)
}

// NewWriter is a name for the audit chain of a home that has none yet.
func NewWriter() string { return "home_" + strings.ToLower(rand.Text()) }

// call runs a function of the money path until its answer is known.
func call[T any](
	ctx context.Context,
	e *fleet,
	scan func(scanner) (T, error),
	query string,
	args ...any,
) (v T, err error) {
	err = e.until(ctx, func(ctx context.Context) error {
		return e.pool.With(ctx, func(c *postgres.Conn) error {
			row := queryRow(ctx, fleetConn{c}, query, asOfNow(args)...)
			if row.err != nil {
				return row.err
			}
			v, err = scan(row)
			if err != nil {
				return answered{err}
			}
			return nil
		})
	})
	return v, err
}

// callAll is call for a function that answers with several rows.
func callAll[T any](
	ctx context.Context,
	e *fleet,
	scan func(scanner) (T, error),
	query string,
	args ...any,
) (list []T, err error) {
	err = e.until(ctx, func(ctx context.Context) error {
		return e.pool.With(ctx, func(c *postgres.Conn) error {
			answer, err := fleetConn{c}.query(ctx, query, asOfNow(args)...)
			if err != nil {
				return err
			}
			for list = nil; ; {
				if err = answer.next(); err != nil {
					break
				}
				one, scanning := scan(answer)
				if scanning != nil {
					return answered{errors.Join(scanning, answer.close())}
				}
				list = append(list, one)
			}
			if closing := answer.close(); closing != nil {
				return closing
			}
			if !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		})
	})
	return list, err
}

// asOfNow asks the arguments anew that are a func() string: what they say is so only when it is sent.
func asOfNow(args []any) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		if f, changes := arg.(func() string); changes {
			args[i] = f()
		}
	}
	return args
}

func scanNumber(row scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

func hexText(b []byte) string { return `\x` + fmt.Sprintf("%x", b) }
