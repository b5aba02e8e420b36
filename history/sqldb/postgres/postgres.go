// Package postgres is PostgreSQL as the database of a ledger or of a book of sales: a schema of its own.
//
// What must stay true: changes are made one after the other, and a change is made once, whatever becomes of
// the answers to its commits.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// On PostgreSQL one row, which each change locks first, stands for BEGIN IMMEDIATE: changes are made one
// after the other by all processes, and READ COMMITTED shows each what those before it wrote.
//
// A commit whose answer is lost may be done, or still run. So a batch has a name, which its transaction
// writes down behind the lock. The batch is written again, under the same name: that waits for the first
// transaction, if it still runs, and then finds its name, if it was committed.

// Server says where a database of PostgreSQL is.
type Server struct {
	URL    string // libpq's, without a password
	Schema string // its own, for all of its tables; default x402
	// Password is asked before each connection, because tokens expire. It may be nil.
	Password func(ctx context.Context) (string, error)
	// Check looks at each new connection: behind the same address there may be another server by now. It may
	// be nil.
	Check func(ask func(query string) (string, error)) error
	// Now replaces the server's clock, for tests.
	Now func() time.Time
	// Dial replaces net.Dialer's, for tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	// connectTimeout bounds one attempt at all the servers of the URL.
	connectTimeout = 5 * time.Second
	// attemptTime bounds one transaction that writes, so that a server that does not answer is noticed.
	attemptTime = 10 * time.Second
	// idleTime is how long a connection that nobody uses stays open.
	idleTime = 5 * time.Minute
	// batchesKept is how long the names of batches are kept: longer than anybody repeats one.
	batchesKept = time.Hour
)

// schema is the name of the database's schema.
func (o Server) schema() string { return cmp.Or(o.Schema, "x402") }

// settings are those of each connection: nothing of PGOPTIONS, because who starts the program says by the URL
// alone what the server does.
func (o Server) settings() map[string]string {
	return map[string]string{
		"application_name": "x402-wallet", "search_path": o.schema(), "lock_timeout": "4s",
		"idle_in_transaction_session_timeout": "10s",
	}
}

// Open opens a database. It connects when it is first asked.
func Open(o Server) (*sqldb.DB, error) {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return nil, x402.Errorf(x402.InvalidArgument, "read ledger.url: %w", err)
	}
	config.ConnectTimeout = connectTimeout
	config.RuntimeParams = o.settings()
	// Of several hosts, the one that takes writes.
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	if o.Dial != nil {
		config.DialFunc = o.Dial
	}
	e := &engine{isOwnClock: o.Now != nil}
	connector := stdlib.GetConnector(*config,
		stdlib.OptionBeforeConnect(func(ctx context.Context, c *pgx.ConnConfig) (err error) {
			if o.Password != nil {
				c.Password, err = o.Password(ctx)
			}
			return err
		}),
		stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
			return e.check(ctx, c, o.Check)
		}),
	)
	write, read := sql.OpenDB(connector), sql.OpenDB(connector)
	write.SetConnMaxIdleTime(idleTime)
	read.SetConnMaxIdleTime(idleTime)
	return sqldb.New(e, write, read, o.Now), nil
}

// Create makes a schema with the tables of a text, in words of SQLite, and then calls f.
func Create(ctx context.Context, o Server, tables string, f func(t *sqldb.Tx) error) error {
	o.Check = nil
	db, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.Make(ctx, func(t *sqldb.Tx) error {
		// f may take long over something else
		err := t.ExecAll("SET LOCAL idle_in_transaction_session_timeout = 0;\n" +
			"CREATE SCHEMA " + o.schema() + ";\n" + ownTables + sqldb.WithoutComments(tables))
		if err == nil {
			err = f(t)
		}
		return err
	})
}

// Make is Create if there is no such schema yet, and reports whether it made one.
func Make(ctx context.Context, o Server, tables string,
	f func(t *sqldb.Tx) error) (made bool, err error) {
	is, err := IsMade(ctx, o)
	if err != nil || is {
		return false, err
	}
	err = Create(ctx, o, tables, f)
	if err != nil {
		if is, _ := IsMade(ctx, o); is { // somebody else made it at the same time
			return false, nil
		}
	}
	return err == nil, err
}

// IsMade reports whether a schema has its tables.
func IsMade(ctx context.Context, o Server) (is bool, err error) {
	o.Check = nil
	db, err := Open(o)
	if err != nil {
		return false, err
	}
	defer func() { _ = db.Close() }()
	return sqldb.Read(ctx, db, func(t *sqldb.Tx) (bool, error) { return t.HasTable("writer") })
}

// ownTables are those that the engine itself needs.
const ownTables = `CREATE TABLE writer (id INTEGER PRIMARY KEY);
INSERT INTO writer VALUES (1);
CREATE TABLE batches (name TEXT PRIMARY KEY, at INTEGER NOT NULL);
CREATE INDEX batches_by_time ON batches (at);
`

// engine is PostgreSQL.
type engine struct {
	isOwnClock bool
	rewritten  sync.Map     // queries in its words
	swept      atomic.Int64 // when old batches were deleted last, seconds
}

// check asks a new connection what its caller wants to know of it.
func (e *engine) check(ctx context.Context, c *pgx.Conn,
	further func(ask func(query string) (string, error)) error) error {
	if further == nil {
		return nil
	}
	return further(func(query string) (text string, err error) {
		err = e.Classify("look at the ledger's server", c.QueryRow(ctx, query).Scan(&text))
		return text, err
	})
}

// Rewrite numbers the arguments ($1 for ? and ?1), and in the text of a table it replaces the types.
func (e *engine) Rewrite(query string) string {
	if known, is := e.rewritten.Load(query); is {
		return known.(string)
	}
	text := Numbered(query)
	if strings.HasPrefix(strings.TrimSpace(text), "CREATE TABLE") {
		text = strings.NewReplacer(" INTEGER", " BIGINT", " BLOB", " BYTEA", " TEXT", ` TEXT COLLATE "C"`).Replace(text)
	}
	e.rewritten.Store(query, text)
	return text
}

// Numbered is a query whose arguments are numbered. A question mark in a quoted text is no argument.
func Numbered(query string) string {
	var text strings.Builder
	isQuoted, last := false, 0
	for i := 0; i < len(query); i++ {
		c := query[i]
		if c == '\'' {
			isQuoted = !isQuoted
		}
		if c != '?' || isQuoted {
			text.WriteByte(c)
			continue
		}
		digits := i + 1
		for digits < len(query) && query[digits] >= '0' && query[digits] <= '9' {
			digits++
		}
		if number := query[i+1 : digits]; number != "" {
			last, _ = strconv.Atoi(number)
		} else {
			last++
		}
		text.WriteString("$" + strconv.Itoa(last))
		i = digits - 1
	}
	return text.String()
}

func (e *engine) HasTable() string { return `SELECT to_regclass(?) IS NOT NULL` }

func (e *engine) Reading() *sql.TxOptions {
	return &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
}

func (e *engine) Patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), attemptTime)
}

// Lock does nothing: the processes of one computer wait for each other in begin.
func (e *engine) Lock(sqldb.Wait) (unlock func(), err error) { return func() {}, nil }

// Begin locks the row that each change locks, and then writes the batch's name down. The clock is read behind
// the lock.
func (e *engine) Begin(t *sqldb.Tx, batch string) (now time.Time, isCommitted bool, err error) {
	var at, fresh int64
	err = t.Row(`WITH held AS MATERIALIZED (SELECT id FROM writer WHERE id = 1 FOR UPDATE),
		noted AS (INSERT INTO batches (name, at)
			SELECT CAST(? AS TEXT), CAST(extract(epoch FROM clock_timestamp()) AS BIGINT) FROM held
			ON CONFLICT (name) DO NOTHING RETURNING name)
		SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT), (SELECT count(*) FROM noted)
			FROM held`, batch).Scan(&at, &fresh)
	if err != nil || fresh == 0 {
		return now, err == nil, err
	}
	if !e.isOwnClock {
		now = time.UnixMicro(at)
	}
	return now, false, e.sweep(t, at)
}

// sweep deletes the names of old batches, now and then.
func (e *engine) sweep(t *sqldb.Tx, now int64) error {
	seconds := now / 1_000_000
	if seconds-e.swept.Swap(seconds) < int64(batchesKept.Seconds()) {
		return nil
	}
	_, err := t.Exec(`DELETE FROM batches WHERE at < ?`, seconds-int64(batchesKept.Seconds()))
	return err
}

// awayError is trouble with the connection or the server that passes. It tells no address, login or database:
// agents read it.
type awayError struct{ error }

func (e awayError) Error() string {
	var said *pgconn.PgError
	var number syscall.Errno
	switch {
	case errors.As(e.error, &said):
		return fmt.Sprintf("it says %s (%s)", said.Message, said.Code)
	case errors.As(e.error, &number):
		return number.Error()
	case strings.Contains(e.error.Error(), "standby"): // as pgconn says it
		return "it is a standby, and takes no writes"
	case errors.Is(e.error, context.DeadlineExceeded):
		return "no answer in time"
	}
	return "no connection"
}

func (e awayError) Unwrap() error { return e.error }

// isAway reports whether an error is trouble that passes: no answer came, or the server undid a transaction
// because of others (40001, 40P01, 55P03), took too long (57014), has no room (53), ends (57P, 08), or is a
// standby (25006).
func isAway(err error) bool {
	var away awayError
	if errors.As(err, &away) {
		return true
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code {
	case "40001", "40P01", "55P03", "57014", "25006", "25P03":
		return true
	}
	return strings.HasPrefix(e.Code, "53") || strings.HasPrefix(e.Code, "57P") ||
		strings.HasPrefix(e.Code, "08")
}

func (e *engine) Retry(err error) bool {
	var known *x402.Error
	if errors.As(err, &known) {
		var away awayError
		return errors.As(err, &away)
	}
	return isAway(err)
}

func (e *engine) GaveUp(_, err error) error { return e.Classify("write the ledger", err) }

func (e *engine) Classify(doing string, err error) error {
	var known *x402.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	var said *pgconn.PgError
	if errors.As(err, &said) && !isAway(said) {
		err = fmt.Errorf("the server says %s (%s)", said.Message, said.Code) // and nothing of the rows
	}
	switch {
	case said != nil && (strings.HasPrefix(said.Code, "28") || said.Code == "42501" || said.Code == "3D000"):
		return x402.Errorf(x402.LedgerUnavailable, "%s: the ledger's server does not let this wallet in: %w",
			doing, err).WithHint("the owner looks at the login in ledger.url, its password and its rights")
	case said != nil && !isAway(said):
		return x402.Errorf(x402.Internal, "%s: %w", doing, err)
	}
	unavailable := x402.Errorf(x402.LedgerUnavailable, "%s: the ledger's server does not answer: %w", doing,
		awayError{err})
	unavailable.FixedBy = x402.ByTime
	return unavailable.WithHint("make the same call again; x402-wallet doctor says what is wrong with the " +
		"server")
}

func (e *engine) InPlace() error { return nil } // each new connection is checked

func (e *engine) Free(*sqldb.Tx) (int64, error) { return 0, nil }

func (e *engine) GiveBack(*sqldb.Tx, int64) error { return nil }

func (e *engine) CutLog(context.Context, *sql.DB, bool) error { return nil }

func (e *engine) PagesAreSound(*sqldb.Tx) error { return nil } // the server's to keep

// CopyTo refuses: the server has tools of its own.
func (e *engine) CopyTo(context.Context, *sql.DB, string) error {
	return errors.New("this database makes no backups of a file")
}

// IsServer implements sqldb.Engine.
func (e *engine) IsServer() bool { return true }

func (e *engine) Close() error { return nil }
