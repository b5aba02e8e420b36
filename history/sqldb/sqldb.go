// Package sqldb is the database of a ledger, or of a paywall's book of sales: SQLite in the home, or
// PostgreSQL. Both take the same queries and transactions; sqlite.go and postgres.go hold what differs.
//
// What must stay true: a change is whole or nothing, a change whose caller got nil is durable, and changes
// are made one after the other, by whatever process, so that each sees all those before it.
//
// The files: sqldb.go (a database, and how it is read), tx.go (a transaction), writer.go (changes that share
// a transaction), wait.go (how long a caller waits for others), filelock.go (processes that take turns),
// sqlite.go, postgres.go and errors.go (the engines).
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// DB is an open database. It is safe for concurrent use, by other processes too.
//
// Its errors are an *x402.Error: LEDGER_CORRUPT if the data is damaged, LEDGER_UNAVAILABLE for trouble of the
// moment, INTERNAL for a defect of a query. What a function that was passed to View or Write returns is
// returned unchanged.
type DB struct {
	engine engine
	write  *sql.DB // one connection
	read   *sql.DB
	now    func() time.Time
	writer writer
}

// engine is what SQLite and PostgreSQL differ in.
type engine interface {
	// rewrite returns a query in the engine's words.
	rewrite(query string) string
	// hasTable is a query for whether there is a table of a name.
	hasTable() string
	// reading returns the options of a transaction that only reads.
	reading() *sql.TxOptions
	// patience returns the context of one attempt to write.
	patience() (context.Context, context.CancelFunc)
	// lock waits until no other process of this computer writes.
	lock(w wait) (unlock func(), err error)
	// begin makes a transaction the only one that writes. It returns the time by the database's clock, or
	// zero if this computer's clock counts, and whether an earlier transaction committed the batch of this
	// name, although its commit failed.
	begin(t *Tx, batch string) (now time.Time, isCommitted bool, err error)
	// classify says what an error of the database means to a caller. It returns an *x402.Error unchanged.
	classify(doing string, err error) error
	// retry reports whether a transaction that failed is to be tried again.
	retry(err error) bool
	// gaveUp is the error of a caller whose time was over while a transaction was tried again.
	gaveUp(over, err error) error
	// inPlace refuses a database that is not the one that was opened.
	inPlace() error
	// free is how many bytes of the database's files are not in use.
	free(t *Tx) (int64, error)
	giveBack(t *Tx, bytes int64) error
	cutLog(ctx context.Context, db *sql.DB, all bool) error
	pagesAreSound(t *Tx) error
	close() error
}

// InPlace refuses, with LEDGER_CORRUPT, a database that is not the one that was opened: a file that was moved
// away or replaced.
func (db *DB) InPlace() error { return db.engine.inPlace() }

// View calls f with a transaction that only reads, and sees one state of the database.
func (db *DB) View(ctx context.Context, f func(*Tx) error) error {
	w := waitFor(ctx)
	var tx *sql.Tx
	for {
		var err error
		if tx, err = db.read.BeginTx(ctx, db.engine.reading()); err == nil {
			break
		}
		if !db.engine.retry(err) {
			return db.engine.classify("begin", err)
		}
		if over := w.over("begin"); over != nil {
			return db.engine.gaveUp(over, err)
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
func (db *DB) CutLog(ctx context.Context) error { return db.engine.cutLog(ctx, db.write, false) }

// Checkpoint copies all of the log into the file. Closing does that too, but does not say when it fails.
func (db *DB) Checkpoint(ctx context.Context) error { return db.engine.cutLog(ctx, db.write, true) }

// Now is this computer's time.
func (db *DB) Now() time.Time { return db.now().UTC() }

// Close ends this process's part in the database.
func (db *DB) Close() error {
	return errors.Join(db.read.Close(), db.write.Close(), db.engine.close())
}

// Read is View for an f with a result.
func Read[T any](ctx context.Context, db *DB, f func(*Tx) (T, error)) (v T, err error) {
	err = db.View(ctx, func(t *Tx) error {
		v, err = f(t)
		return err
	})
	return v, err
}
