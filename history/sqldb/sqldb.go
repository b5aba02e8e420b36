// Package sqldb is the database of a ledger, or of a paywall's book of sales: SQLite in the home, or
// PostgreSQL. Both take the same queries and transactions; packages sqlite and postgres hold what differs.
//
// What must stay true: a change is whole or nothing, a change whose caller got nil is durable, and changes
// are made one after the other, by whatever process, so that each sees all those before it.
//
// The files: sqldb.go (a database, and how it is read), tx.go (a transaction), writer.go (changes that share
// a transaction), wait.go (how long a caller waits for others), filelock.go (processes that take turns).
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"time"

	"x402-wallet/x402"
)

// DB is an open database. It is safe for concurrent use, by other processes too.
//
// Its errors are an *x402.Error: LEDGER_CORRUPT if the data is damaged, LEDGER_UNAVAILABLE for trouble of the
// moment, INTERNAL for a defect of a query. What a function that was passed to View or Write returns is
// returned unchanged.
type DB struct {
	engine Engine
	write  *sql.DB // one connection
	read   *sql.DB
	now    func() time.Time
	wait   time.Duration // how long a change is tried: lockWait
	writer writer
}

// Engine has all in which SQLite and PostgreSQL differ.
type Engine interface {
	// Rewrite returns a query in the engine's words.
	Rewrite(query string) string
	// HasTable is a query for whether there is a table of a name.
	HasTable() string
	// Reading returns the options of a transaction that only reads.
	Reading() *sql.TxOptions
	// Patience returns the context of one attempt to write.
	Patience() (context.Context, context.CancelFunc)
	// Lock waits until no other process of this computer writes.
	Lock(w Wait) (unlock func(), err error)
	// Begin makes a transaction the only one that writes. It returns the time by the database's clock, or
	// zero if this computer's clock counts, and whether an earlier transaction committed the batch of this
	// name, although its commit failed.
	Begin(t *Tx, batch string) (now time.Time, isCommitted bool, err error)
	// Classify says what an error of the database means to a caller. It returns an *x402.Error unchanged.
	Classify(doing string, err error) error
	// Retry reports whether a transaction that failed is to be tried again.
	Retry(err error) bool
	// GaveUp is the error of a caller whose time was over while a transaction was tried again.
	GaveUp(over, err error) error
	// IsServer reports whether other computers may use the database.
	IsServer() bool
	// InPlace refuses a database that is not the one that was opened.
	InPlace() error
	// Free is how many bytes of the database's files are not in use.
	Free(t *Tx) (int64, error)
	GiveBack(t *Tx, bytes int64) error
	CutLog(ctx context.Context, db *sql.DB, all bool) error
	PagesAreSound(t *Tx) error
	// CopyTo copies the database into a new file of SQLite.
	CopyTo(ctx context.Context, read *sql.DB, path string) error
	Close() error
}

// readers is how many transactions read at a time.
const readers = 4

// New returns a database of an engine, which reads and writes by connections of its own. Default of now is
// time.Now.
func New(e Engine, write, read *sql.DB, now func() time.Time) *DB {
	write.SetMaxOpenConns(1)
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	if now == nil {
		now = time.Now
	}
	return &DB{engine: e, write: write, read: read, now: now, wait: lockWait}
}

// Make calls f in a transaction that makes tables. The engine has none of its own yet, so nobody is kept from
// writing meanwhile.
func (db *DB) Make(ctx context.Context, f func(*Tx) error) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return db.engine.Classify("create the ledger", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to roll back
	err = f(&Tx{Now: db.Now(), ctx: ctx, conn: tx, engine: db.engine})
	if err == nil {
		err = db.engine.Classify("create the ledger", tx.Commit())
	}
	return err
}

// IsServer reports whether other computers may use the database.
func (db *DB) IsServer() bool { return db.engine.IsServer() }

// CopyTo copies a file of SQLite into a new one.
func (db *DB) CopyTo(ctx context.Context, path string) error {
	return db.engine.CopyTo(ctx, db.read, path)
}

// InPlace refuses, with LEDGER_CORRUPT, a database that is not the one that was opened: a file that was moved
// away or replaced.
func (db *DB) InPlace() error { return db.engine.InPlace() }

// View calls f with a transaction that only reads, and sees one state of the database.
func (db *DB) View(ctx context.Context, f func(*Tx) error) error {
	w := waitFor(ctx)
	var tx *sql.Tx
	for {
		var err error
		if tx, err = db.read.BeginTx(ctx, db.engine.Reading()); err == nil {
			break
		}
		if !db.engine.Retry(err) {
			return db.engine.Classify("begin", err)
		}
		if over := w.over("begin"); over != nil {
			return db.engine.GaveUp(over, err)
		}
		time.Sleep(retryPause)
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to commit
	return f(&Tx{Now: db.now().UTC(), ctx: ctx, conn: tx, engine: db.engine})
}

// Once is View for an f of one query, or of several about what never changes. It has no transaction around
// it.
func (db *DB) Once(ctx context.Context, f func(*Tx) error) error {
	return f(&Tx{Now: db.now().UTC(), ctx: ctx, conn: db.read, engine: db.engine})
}

// CutLog copies what it can of the log into the file, so that both become smaller.
func (db *DB) CutLog(ctx context.Context) error { return db.engine.CutLog(ctx, db.write, false) }

// Checkpoint copies all of the log into the file. Closing does that too, but does not say when it fails.
func (db *DB) Checkpoint(ctx context.Context) error { return db.engine.CutLog(ctx, db.write, true) }

// Damaged is the error of a database whose data cannot be read.
func Damaged(doing string, err error) error {
	return x402.Errorf(x402.LedgerCorrupt, "%s: the ledger is damaged: %w", doing, err).
		WithHint("stop every process of this wallet, keep a copy of ledger.db (of a paywall: sales.db), " +
			"its -wal and its -shm, and restore a backup; nothing is paid until then")
}

// Now is this computer's time.
func (db *DB) Now() time.Time { return db.now().UTC() }

// Close ends this process's part in the database.
func (db *DB) Close() error {
	return errors.Join(db.read.Close(), db.write.Close(), db.engine.Close())
}

// Read is View for an f with a result.
func Read[T any](ctx context.Context, db *DB, f func(*Tx) (T, error)) (v T, err error) {
	err = db.View(ctx, func(t *Tx) error {
		v, err = f(t)
		return err
	})
	return v, err
}

// ExecAll runs the statements of a text, each of which ends with a semicolon at a line's end.
func (t *Tx) ExecAll(text string) error {
	for statement := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := t.Exec(statement); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) HasTable(name string) (bool, error) { return t.Is(t.engine.HasTable(), name) }

// WithoutComments is a text of SQL without its comments: SQLite keeps the text of each table.
func WithoutComments(text string) string {
	return regexp.MustCompile(`[ \t]*--.*`).ReplaceAllString(text, "")
}
