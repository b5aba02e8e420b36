// Package sqlite is SQLite as the database of a ledger or of a book of sales: the file of a home.
//
// What must stay true: a commit that returned is on the disk, and nothing but SQLite opens its files.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"x402-wallet/history/sqldb"
	"x402-wallet/internal/ownfile"
	"x402-wallet/x402"
)

// Nothing but SQLite ever opens the database, its log (-wal) or its index (-shm): when a process closes any
// descriptor of a file, the kernel drops all of its POSIX locks on it, those of SQLite among them
// (https://www.sqlite.org/howtocorrupt.html §2.2).

// File says where a database of SQLite is.
type File struct {
	Home string // the folder
	Name string // of the file in it
	// Create lets SQLite make the file.
	Create bool
	Now    func() time.Time // default time.Now
}

// busyWait is how long SQLite waits by itself, between two looks at whether the caller still does.
const busyWait = 50 * time.Millisecond

// Open opens a database. A file that is missing is an error, unless o.Create is set.
func Open(o File) (*sqldb.DB, error) {
	e := &engine{path: filepath.Join(o.Home, o.Name), turn: sqldb.NewFileLock(o.Home, lockName(o.Name))}
	if !o.Create {
		info, err := os.Lstat(e.path)
		if err != nil {
			return nil, e.Classify("open the ledger", err)
		}
		e.file = info
	}
	write, err := sql.Open("sqlite", e.dsn(o.Create)+"&_txlock=immediate")
	if err != nil {
		return nil, e.Classify("open the ledger", err)
	}
	read, err := sql.Open("sqlite", e.dsn(false)+"&_pragma=query_only(1)&_pragma=cache_size(-8000)")
	if err != nil {
		return nil, errors.Join(e.Classify("open the ledger", err), write.Close())
	}
	return sqldb.New(e, write, read, o.Now), nil
}

// lockName is the name of a file's lock: ledger of ledger.db.
func lockName(file string) string { return strings.TrimSuffix(file, filepath.Ext(file)) }

// Create makes a file with the tables of a text, calls f, and gives the file its name then: what a
// process that was killed leaves behind is not taken for a damaged database. A file that is there is
// fs.ErrExist, wrapped in LEDGER_UNAVAILABLE. Only the file's owner can read it.
func Create(ctx context.Context, o File, tables string, f func(t *sqldb.Tx) error) error {
	file := filepath.Join(o.Home, o.Name)
	if _, err := os.Lstat(file); err == nil {
		return creating(fs.ErrExist)
	}
	temp, err := os.MkdirTemp(o.Home, "."+o.Name+"-")
	if err != nil {
		return creating(err)
	}
	defer func() { _ = os.RemoveAll(temp) }()

	made := filepath.Join(temp, o.Name)
	err = fillNew(ctx, File{Home: temp, Name: o.Name, Create: true, Now: o.Now}, tables, f)
	if err != nil {
		return err
	}
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Link(made, file) // it replaces no file
	}
	if err == nil {
		err = ownfile.SyncDir(o.Home)
	}
	return creating(err)
}

func creating(err error) error {
	if err == nil {
		return nil
	}
	return x402.Errorf(x402.LedgerUnavailable, "create the ledger: %w", err)
}

// fillNew makes a file that holds all of its log.
func fillNew(ctx context.Context, o File, tables string, f func(t *sqldb.Tx) error) (err error) {
	db, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.Write(ctx, func(t *sqldb.Tx) error {
		if err := t.ExecAll(tables); err != nil {
			return err
		}
		return f(t)
	})
	if err == nil {
		err = db.Checkpoint(ctx)
	}
	return err
}

// engine is SQLite.
type engine struct {
	path string
	file os.FileInfo // when it was opened; nil if it was to be made
	log  os.FileInfo // when it was first written to
	turn *sqldb.FileLock
}

// dsn is the file with the settings of each connection. With synchronous=FULL a commit is on the disk when it
// returns; macOS needs fullfsync for that. A log that content made longer than 64 MiB is cut again. 4000
// pages are 16 MiB of log: with SQLite's default of a thousand it would be copied into the file every fifty
// payments. auto_vacuum has to be set while the file is empty.
func (e *engine) dsn(create bool) string {
	mode, first := "rw", []string(nil)
	if create {
		mode, first = "rwc", []string{"auto_vacuum(INCREMENTAL)"}
	}
	dsn := fileURI(e.path) + fmt.Sprintf("?mode=%s&_pragma=busy_timeout(%d)", mode, busyWait.Milliseconds())
	for _, pragma := range append(first, "journal_mode(WAL)", "journal_size_limit(67108864)",
		"synchronous(FULL)", "fullfsync(ON)", "checkpoint_fullfsync(ON)", "wal_autocheckpoint(4000)",
		"trusted_schema(OFF)", "temp_store(MEMORY)") {
		dsn += "&_pragma=" + pragma
	}
	return dsn
}

// fileURI is a path as SQLite takes it in a URI.
func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a Windows drive
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath()
}

func (e *engine) Rewrite(query string) string { return query }

func (e *engine) HasTable() string {
	return `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?)`
}

func (e *engine) Reading() *sql.TxOptions { return &sql.TxOptions{ReadOnly: true} }

func (e *engine) Patience() (context.Context, context.CancelFunc) {
	return context.Background(), func() {}
}

func (e *engine) Lock(w sqldb.Wait) (unlock func(), err error) { return e.turn.LockFor(w) }

// Begin looks whether the log still is the file that this process writes to: BEGIN IMMEDIATE lets nobody else
// write.
func (e *engine) Begin(*sqldb.Tx, string) (now time.Time, isCommitted bool, err error) {
	return now, false, e.logInPlace()
}

// logInPlace refuses a log that was removed or replaced under this process. SQLite keeps it while anybody has
// the database open; commits would go into a file that no other process finds. It looks at the file's name
// alone and opens nothing.
func (e *engine) logInPlace() error {
	name := filepath.Base(e.path) + "-wal"
	info, err := os.Lstat(e.path + "-wal")
	switch {
	case err != nil:
	case e.log == nil:
		e.log = info
		return nil
	case os.SameFile(e.log, info):
		return nil
	default:
		err = errors.New("it was replaced")
	}
	return x402.Errorf(x402.LedgerUnavailable, "look for %s: %w", name, err).
		WithHint("files of the ledger were taken away: stop all processes of this wallet, " +
			"restore a backup, and run x402-wallet history verify")
}

// IsServer says no: only processes of this computer use a file.
func (e *engine) IsServer() bool { return false }

func (e *engine) InPlace() error {
	info, err := os.Lstat(e.path)
	switch {
	case err == nil && (e.file == nil || os.SameFile(info, e.file)):
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return x402.Errorf(x402.LedgerUnavailable, "look for the ledger: %w", err)
	}
	return x402.Errorf(x402.LedgerCorrupt,
		"the ledger %s was moved, deleted or replaced while this process had it open", filepath.Base(e.path)).
		WithHint("put it back into its place; nothing is paid without it")
}

// Retry waits for other processes, and for a program of somebody else's.
func (e *engine) Retry(err error) bool {
	code := primaryCode(err)
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
}

func (e *engine) GaveUp(over, _ error) error { return over }

func (e *engine) Close() error { return e.turn.Close() }

// primaryCode is SQLite's code of an error (https://www.sqlite.org/rescode.html), or 0 if it has none.
func primaryCode(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

// Classify: a damaged file stops payments until a person looks, a mistake in a query is a defect of this
// program, anything else is trouble of this moment. The file is never repaired or replaced.
func (e *engine) Classify(doing string, err error) error {
	var known *x402.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sqldb.OutOfTime(doing, err)
	}
	unavailable := x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
	switch primaryCode(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return sqldb.Damaged(doing, err)
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE:
		return x402.Errorf(x402.Internal, "%s: %w", doing, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return sqldb.HeldTooLong(doing)
	case sqlite3.SQLITE_INTERRUPT: // its caller left
		return sqldb.OutOfTime(doing, err)
	case sqlite3.SQLITE_FULL:
		return x402.Errorf(x402.LedgerUnavailable, "%s: the disk is full: %w", doing, err).
			WithHint("make room on the disk of the wallet's home, then make the same call again")
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return unavailable.WithHint("the disk of the wallet's home failed, or files of the ledger were " +
			"taken away: see to it, restart the wallet's processes, and run x402-wallet history verify")
	case sqlite3.SQLITE_READONLY:
		return x402.Errorf(x402.LedgerUnavailable, "%s: its files cannot be written", doing).
			WithHint("the home and its files must be yours to write, on a disk that is not mounted read-only")
	}
	return unavailable
}

func (e *engine) Free(t *sqldb.Tx) (bytes int64, err error) {
	err = t.Row(`SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size`).Scan(&bytes)
	return bytes, err
}

func (e *engine) GiveBack(t *sqldb.Tx, bytes int64) error {
	var size int64
	if err := t.Row(`SELECT page_size FROM pragma_page_size`).Scan(&size); err != nil {
		return err
	}
	// a row for each page
	return t.Each(func(sqldb.Row) error { return nil }, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, bytes/size+1))
}

func (e *engine) CutLog(ctx context.Context, db *sql.DB, all bool) error {
	how := "PASSIVE" // a reader that is in the way puts it off
	if all {
		how = "TRUNCATE"
	}
	var busy, inLog, moved int
	err := db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(`+how+`)`).Scan(&busy, &inLog, &moved)
	if err == nil && all && busy != 0 {
		err = errors.New("somebody else has it open")
	}
	return e.Classify("write the ledger's log into its file", err)
}

// PagesAreSound asks SQLite whether its file is whole.
func (e *engine) PagesAreSound(t *sqldb.Tx) error {
	var text string
	err := t.Row(`PRAGMA integrity_check(1)`).Scan(&text)
	if err == nil && text != "ok" {
		err = sqldb.Damaged("check the ledger's file", errors.New(text))
	}
	return err
}

// backupStep is how many pages are copied between two looks at whether the caller left.
const backupStep = 1 << 14

// CopyTo copies the file page by page, by SQLite's backup API: one state of it, while other processes go on
// writing.
func (e *engine) CopyTo(ctx context.Context, read *sql.DB, path string) error {
	c, err := read.Conn(ctx)
	if err != nil {
		return e.Classify("copy the ledger", err)
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, `BEGIN`); err != nil {
		return e.Classify("copy the ledger", err)
	}
	defer func() { _, _ = c.ExecContext(context.Background(), `ROLLBACK`) }()
	var n int // the state that is copied is that of the first reading
	if err := c.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n); err != nil {
		return e.Classify("copy the ledger", err)
	}
	err = c.Raw(func(driver any) error { return copyPages(ctx, driver, path) })
	return e.Classify("copy the ledger", err)
}

func copyPages(ctx context.Context, from any, path string) (err error) {
	source, ok := from.(interface {
		NewBackup(uri string) (*sqlite.Backup, error)
	})
	if !ok {
		return errors.New("SQLite's driver makes no backups")
	}
	copying, err := source.NewBackup(fileURI(path) + "?mode=rwc&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copying.Finish()) }()
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		more, err = copying.Step(backupStep)
		if err != nil {
			return err
		}
	}
	return nil
}
