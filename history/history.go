// Package history is the ledger: what the wallet paid, for ever. One SQLite file holds every
// payment with its evidence, the content it bought and an audit chain; several processes share it.
//
// What must stay true: a payment's row is durable before the step it announces is taken, a state
// changes only as the table in payment.go allows, and a budget is decided in the same transaction
// that holds its money.
//
// The files: payment.go (what a payment is, and where it may go), reserve.go (hold), write.go
// (every step after that, and the audit chain), query.go (one payment, what is unfinished, Verify),
// list.go (the history that people search), remember.go (payees and prices, for the rules),
// approvals.go, freeze.go and rules.go (what the owner said; the chain's head), channels.go and
// sales.go (promises; what a paywall sold), books.go (labels and imports). Under all of them:
// commit.go (changes that share a transaction), turn.go (processes that take turns), instance.go
// (which processes live), pool.go (connections), migrate.go (older formats).
package history

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"x402-wallet/x402"
)

//go:embed schema.sql
var schema string

// lockWait bounds how long a process waits for another one's transaction. Transactions here take
// milliseconds and never span the network, so waiting longer means something is wrong.
const lockWait = 5 * time.Second

// FileName is the ledger's name in the wallet's home (SPEC §2).
const FileName = "ledger.db"

// Store is an open ledger. It is safe for concurrent use; Close it.
type Store struct {
	write *pool // one connection: this process's writers queue here instead of in SQLite
	read  *pool
	now   func() time.Time
	home  string
	file  os.FileInfo // ledger.db when it was opened
	turns *turns      // at writing
	marks *turns      // at marking: AtHead
	lock  func(*os.File) (held bool, err error)

	channelTurns channelTurns

	changes changes

	self     *instance // nil before the first payment
	selfLock sync.Mutex
}

// Options have useful zero values.
type Options struct {
	Now func() time.Time // default time.Now
}

// Create makes the ledger of a new wallet. It never touches one that is there.
func Create(ctx context.Context, home string, o Options) error {
	path := filepath.Join(home, FileName)
	// before SQLite, so that it is never readable by others
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return x402.Errorf(x402.LedgerUnavailable, "create the ledger: %w", err)
	}
	file.Close()
	s, err := open(home, o)
	if err != nil {
		return err
	}
	defer s.Close()
	err = s.tx(ctx, func(t *Tx) error {
		if _, err := t.exec(schema); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO meta VALUES ('format', ?), ('ledger_id', ?)`, strconv.Itoa(format),
			newID("led_")); err != nil {
			return err
		}
		return t.audit("", "created", map[string]int{"format": format})
	})
	if err != nil {
		return err
	}
	// Into the file itself, for who moves it: closing does that too, but does not say when it
	// fails.
	var busy, inLog, moved int
	err = s.write.with(ctx, func(c *conn) error {
		return c.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &inLog, &moved)
	})
	if err == nil && busy != 0 {
		err = errors.New("somebody else has it open")
	}
	return ledgerError("create the ledger", err)
}

// Open opens the ledger that Create made. A missing one is LEDGER_CORRUPT, not an empty one: an
// empty ledger would be a full budget.
func Open(ctx context.Context, home string, o Options) (*Store, error) {
	path := filepath.Join(home, FileName)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, x402.Errorf(x402.LedgerCorrupt, "the ledger %s is missing; without it no budget is known",
			FileName).
			WithHint("restore %s from a backup; nothing is paid without it", FileName)
	case err != nil:
		return nil, x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	case !info.Mode().IsRegular():
		return nil, x402.Errorf(x402.LedgerUnavailable, "the ledger %s is not a regular file", FileName)
	}
	if err := isDatabase(path); err != nil {
		return nil, err
	}
	s, err := open(home, o)
	if err != nil {
		return nil, err
	}
	s.file = info
	if err := s.migrate(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// InPlace says whether ledger.db still is the file that was opened: what is written into one that
// was moved away or deleted is found by nobody, and another one in its place knows another budget.
func (s *Store) InPlace() error {
	info, err := os.Lstat(filepath.Join(s.home, FileName))
	if err == nil && os.SameFile(info, s.file) {
		return nil
	}
	return x402.Errorf(x402.LedgerCorrupt, "the ledger %s was moved, deleted or replaced while this "+
		"process had it open", FileName).
		WithHint("put it back into its place; nothing is paid without it")
}

// isDatabase looks before SQLite does: opening an empty or short file would write a fresh header
// into it.
func isDatabase(path string) error {
	const magic = "SQLite format 3\x00" // https://www.sqlite.org/fileformat.html §1.2
	file, err := os.Open(path)
	if err != nil {
		return x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	}
	defer file.Close()
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(file, head); err != nil || string(head) != magic {
		return damaged("open the ledger", errors.New("it is not a database"))
	}
	return nil
}

func damaged(doing string, err error) error {
	return x402.Errorf(x402.LedgerCorrupt, "%s: the ledger is damaged: %w", doing, err).
		WithHint("stop every process of this wallet, keep a copy of ledger.db, ledger.db-wal and " +
			"ledger.db-shm, and restore a backup; nothing is paid until then")
}

func open(home string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	path := filepath.ToSlash(filepath.Join(home, FileName))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a Windows drive
	}
	// 4000 pages are 16 MiB of log: SQLite's thousand would mean to copy it, and to wait for the disk, every fifty payments.
	dsn := func(extra string) string {
		return "file://" +
			(&url.URL{Path: path}).EscapedPath() + fmt.Sprintf("?mode=rw&_pragma=busy_timeout(%d)",
			lockWait.Milliseconds()) +
			"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(4000)&_pragma=trusted_schema(OFF)" + extra
	}
	write, err := newPool(dsn(""), 1)
	if err != nil {
		return nil, x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	}
	read, err := newPool(dsn("&_pragma=query_only(1)&_pragma=cache_size(-8000)"), 4)
	if err != nil {
		return nil, x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	}
	return &Store{write: write, read: read, now: o.Now, home: home, turns: newTurns(home, "ledger"),
		marks: newTurns(home, "mark"), lock: lock}, nil
}

// Close ends this process's part in the ledger.
func (s *Store) Close() error {
	s.selfLock.Lock()
	defer s.selfLock.Unlock()
	if s.self != nil {
		s.self.release()
		s.self = nil
	}
	return errors.Join(s.read.close(), s.write.close(), s.turns.close(), s.marks.close(),
		s.channelTurns.close())
}

const hintHeld = "make the same call again; a process of this wallet that was suspended while it wrote " +
	"keeps the others out until it goes on or ends"

// ledgerError says what SQLite's trouble means: a damaged file stops payments until a person looks,
// anything else is trouble of this moment. The file is never repaired or replaced here.
func ledgerError(doing string, err error) error {
	if err == nil || isAnswer(err) {
		return err
	}
	var e *sqlite.Error
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR:
			return damaged(doing, err)
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			return x402.Errorf(x402.LedgerUnavailable, "%s: another process held the ledger for more than %s",
				doing, lockWait).WithHint(hintHeld)
		case sqlite3.SQLITE_FULL:
			return x402.Errorf(x402.LedgerUnavailable, "%s: the disk is full: %w", doing, err).
				WithHint("make room on the disk of the wallet's home, then make the same call again")
		case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
			return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err).
				WithHint("the disk of the wallet's home failed, or files of the ledger were taken away: " +
					"see to it, start the wallet's processes anew, and run x402-wallet history verify")
		case sqlite3.SQLITE_READONLY:
			return x402.Errorf(x402.LedgerUnavailable, "%s: its files cannot be written", doing).
				WithHint("the home and its files must be yours to write, on a disk that is not mounted " +
					"read-only")
		}
	}
	return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
}

// isAnswer tells the ledger's own answers, and those of whoever asked inside a transaction, from
// trouble with the file.
func isAnswer(err error) bool {
	var (
		own   *x402.Error
		taken *AlreadyPaying
		short *ShortOfFunds
		sold  *AlreadySold
	)
	for _, target := range []any{&own, &taken, &short, &sold} {
		if errors.As(err, target) {
			return true
		}
	}
	for _, target := range []error{ErrNoPayment, ErrNoCursor, ErrSignedBefore, ErrTransition,
		ErrNotLeaseOwner, ErrRulesMoved, ErrNoSession,
		ErrNoApproval, ErrDecided, ErrTooManyApproval, ErrNoSale, ErrNoChannel, ErrVoucherConflict, ErrAskCap} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// Tx is one transaction on the ledger. It satisfies budget.Ledger.
type Tx struct {
	ctx  context.Context
	conn *conn
	Now  time.Time // never before a payment that is in the ledger: a clock set back opens no window again
}

// view runs f on a consistent reading.
func (s *Store) view(ctx context.Context, f func(*Tx) error) error {
	return ledgerError("read the ledger", s.read.with(ctx, func(c *conn) error {
		return c.transaction(`BEGIN`, func() error { return f(&Tx{ctx: ctx, conn: c, Now: s.now().UTC()}) })
	}))
}

func (t *Tx) exec(query string, args ...any) (sql.Result, error) {
	return t.conn.exec(t.ctx, query, args...)
}

// row asks for what an index finds at once: to watch whether the caller leaves meanwhile would cost
// more than the query.
func (t *Tx) row(query string, args ...any) *sql.Row {
	if t.ctx.Err() != nil {
		return t.slowRow(query, args...) // which says so
	}
	quick := *t
	quick.ctx = context.Background()
	return quick.slowRow(query, args...)
}

// slowRow asks for what may take a while, unless the caller leaves.
func (t *Tx) slowRow(query string, args ...any) *sql.Row {
	if stmt := t.conn.stmt(t.ctx, query); stmt != nil { //nolint:sqlclosecheck // closed with its connection
		return stmt.QueryRowContext(t.ctx, args...)
	}
	return t.conn.QueryRowContext(t.ctx, query, args...)
}

func (t *Tx) rows(query string, args ...any) (*sql.Rows, error) {
	if stmt := t.conn.stmt(t.ctx, query); stmt != nil { //nolint:sqlclosecheck // closed with its connection
		return stmt.QueryContext(t.ctx, args...)
	}
	return t.conn.QueryContext(t.ctx, query, args...)
}

// scanner is a row of an answer.
type scanner interface{ Scan(...any) error }

// forEach goes through an answer, to its end or the first error.
func (t *Tx) forEach(f func(row scanner) error, query string, args ...any) error {
	rows, err := t.rows(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// collect returns an answer, of each row what scan makes of it.
func collect[T any](t *Tx, scan func(row scanner) (T, error), query string, args ...any) (list []T,
	err error) {
	err = t.forEach(func(row scanner) error {
		one, err := scan(row)
		list = append(list, one)
		return err
	}, query, args...)
	return list, err
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
