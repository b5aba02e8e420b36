// Package history is the ledger: what the wallet paid, for ever. One SQLite file holds every
// payment with its evidence, the content it bought and an audit chain; several processes share it.
//
// What must stay true: a payment's row is durable before the step it announces is taken, a state
// changes only as the table in payment.go allows, and a budget is decided in the same transaction
// that holds its money.
//
// The files: payment.go (what a payment is, and which state follows which), facts.go (what a
// decision needs to know), reserve.go (hold), sign.go (a signature, before it is handed out), write.go
// (every other step, and the audit chain), query.go (one payment, what is unfinished), content.go
// (what was bought, and its quota), search.go (the history that people search, search_sums.go and
// search_parts.go what it came to), payees.go (payees and
// prices, for the rules), approvals.go, freeze.go and rules.go (what the owner said; the chain's head),
// channels.go (vouchers), sales.go and soldchannels.go (what a paywall sold, and is owed), books.go (sums,
// labels and imports);
// asked.go says how often a person may be asked, signin.go what a sign-in is. alerts.go is what the owner is
// told of, alertcause.go what causes it, tell.go whether it was told, turns.go by whom.
//
// What a signature believes: sealed.go (the chain's sealed rows), sums.go and memory.go (what they
// hold), accept.go (a ledger as the owner accepts it); verify.go, stories.go, story.go and replay.go
// compare all of the ledger with the chain (verifycontent.go: the content with what the ledger says of it,
// sample.go: a part); btree.go, stored.go and cursor.go read it for them.
//
// A fleet's ledger, in PostgreSQL: fleet.go (the engine), fleetfacts.go, fleetreserve.go, fleetsubmit.go and
// fleetfinish.go (the steps of a payment, with their halves in postgres_functions.sql), fleetwrite.go (every
// other change), fleetchannels.go, fleetcontent.go, fleetsearch.go, fleetreads.go, fleetturns.go and
// fleetverify.go (what is otherwise there than on SQLite), fleetrules.go; fleetinstance.go (which processes
// live), fleetserver.go (what the server has to be), fleeterrors.go (what its errors mean); dialect.go is
// what the texts of SQL differ in where they are the same otherwise.
//
// A ledger moves: move.go (its mark, and what both ways have in common), movefleet.go and movecopy.go (into a
// fleet's), movehome.go and movechain.go (into ledger.db).
//
// Under all of them, and SQLite's own: pack.go (texts that take little room), commit.go (changes that
// share a transaction), filelock.go (processes that take turns),
// patience.go (how long anybody waits for others), instance.go (which processes live), pool.go
// (connections, and what their errors mean), tx.go (a transaction, and how it reads), rows.go (queries and
// their answers).
package history

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"x402-wallet/x402"
)

//go:embed schema.sql
var schemaFile string

// schema is schema.sql without its comments: a ledger keeps the text of each table as it was made,
// which Verify compares.
var schema = sync.OnceValue(func() string {
	return regexp.MustCompile(`[ \t]*--.*`).ReplaceAllString(schemaFile, "")
})

// format is what schema.sql makes. A ledger of another one is refused.
const format = 1

// lockWait bounds how long a process waits for another one's transaction. Transactions here take
// milliseconds and never span the network, so waiting longer means something is wrong. A caller who
// has less time waits no longer than that (patience.go).
const lockWait = 5 * time.Second

// busyWait is how long SQLite waits by itself, between two looks at whether the caller still does.
const busyWait = 50 * time.Millisecond

// FileName is the ledger's name in the wallet's home.
const FileName = "ledger.db"

// Store is an open ledger. It is safe for concurrent use, by other processes too; Close it. A process opens
// a ledger once, and gives others a Store of it by Share.
//
// Errors: what a method documents (sentinels and types of this package); else an *x402.Error:
// LEDGER_CORRUPT, where the file is damaged or another one, and nothing is paid until a person has
// looked; LEDGER_UNAVAILABLE, for trouble of the moment, a context that ended among it; INTERNAL,
// for a defect of this package. With any error nothing was written, unless the commit itself
// failed: then the change may be on disk, and repeating it finds that out.
type Store struct {
	*database

	contentQuota int64
	alerted      func() // may be nil
	closing      sync.Once

	self     *instance // nil before the first payment
	selfLock sync.Mutex
}

// database is what the Stores of one open ledger share.
type database struct {
	write *pool // one connection: this process's writers queue here instead of in SQLite
	read  *pool
	now   func() time.Time
	home  string
	file  os.FileInfo // ledger.db when it was opened
	queue commitQueue

	storesLock sync.Mutex
	stores     int // that are open; the last one closes the database

	followed followed

	moves   bool // it may be marked: see OpenMoving
	arrival *arrival

	writeLock, checkpointLock *fileLock
	channelLocks              channelLocks

	ledgerID         atomic.Pointer[string] // nil: not read yet
	answersForgotten atomic.Int64           // when forgetAnswers last looked, microseconds

	fleet *fleet // nil: the ledger is SQLite's, in the home

	lock func(*os.File) (held bool, err error)
}

// Options have useful zero values.
type Options struct {
	Now func() time.Time // default time.Now
	// ContentQuota is how many bytes of content may be stored, but for what nobody got yet; 0: any number.
	ContentQuota int64
	// Alerted is called after this process wrote an alert, and must return at once; nil: nobody is told.
	Alerted func()

	moves    bool   // see OpenMoving
	ledgerID string // of a new ledger; "": a fresh one
}

// Create makes the ledger of a new wallet. It never touches one that is there. Other users cannot read it
// before it has its mode, because they cannot enter the home.
func Create(ctx context.Context, home string, o Options) error {
	path := filepath.Join(home, FileName)
	switch _, err := os.Lstat(path); {
	case err == nil:
		return x402.Errorf(x402.LedgerUnavailable, "create the ledger: %w", fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return x402.Errorf(x402.LedgerUnavailable, "create the ledger: %w", err)
	}
	// auto_vacuum has to be set while the file is empty. It lets content.go give room back to the disk in
	// small steps.
	s, err := open(home, o, createFile, "auto_vacuum(INCREMENTAL)")
	if err != nil {
		return err
	}
	defer s.Close()
	s.moves = true                                                     // it has no format yet
	err = s.read.with(ctx, func(c *conn) error { return c.reading() }) // SQLite makes the file
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return x402.Errorf(x402.LedgerUnavailable, "create the ledger: %w", err)
	}
	err = s.tx(ctx, func(t *tx) error {
		if _, err := t.exec(schema()); err != nil {
			return err
		}
		id := orText(o.ledgerID, newID("led_"))
		_, err := t.exec(`INSERT INTO meta VALUES ('format', ?), ('ledger_id', ?)`, strconv.Itoa(format), id)
		if err != nil {
			return err
		}
		return t.audit(0, createdEvent, map[string]any{"format": format, "ledger": id})
	})
	if err != nil {
		return err
	}
	// Into the file itself, for whoever moves it: closing does that too, but does not say when it fails.
	var busy, inLog, moved int
	return s.write.with(ctx, func(c *conn) error {
		err := c.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &inLog, &moved)
		if err == nil && busy != 0 {
			err = errors.New("somebody else has it open")
		}
		return ledgerError("create the ledger", err)
	})
}

// createdEvent is the audit chain's first.
const createdEvent = "created"

// Open opens the ledger that Create made. A missing one is LEDGER_CORRUPT, not an empty one: an
// empty ledger would be a full budget.
func Open(ctx context.Context, home string, o Options) (*Store, error) {
	path := filepath.Join(home, FileName)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, x402.Errorf(x402.LedgerCorrupt,
			"the ledger %s is missing; without it no budget is known", FileName).
			WithHint("restore %s from a backup; nothing is paid without it", FileName).
			WithCommand(x402.Command("doctor"), "The wallet's ledger is gone: please restore "+FileName+
				" from a backup. Nothing is paid without it.")
	case err != nil:
		return nil, x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	case !info.Mode().IsRegular():
		return nil, x402.Errorf(x402.LedgerUnavailable, "the ledger %s is not a regular file", FileName)
	case info.Size() == 0: // SQLite would take it for a new database
		return nil, damaged("open the ledger", errors.New("it is empty"))
	}
	s, err := open(home, o, existingFile)
	if err != nil {
		return nil, err
	}
	s.file = info
	if err := s.view(ctx, (*tx).isLedger); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// isLedger refuses a database that is not a ledger, or one of another format.
func (t *tx) isLedger() error {
	var n int
	if err := t.row(`SELECT count(*) FROM sqlite_schema WHERE name = 'meta'`).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return damaged("open the ledger", errors.New("it has no table of a ledger"))
	}
	return t.sameFormat()
}

// sameFormat refuses a ledger of another format, and one that is marked for a move. What holds money asks
// again: another process may have changed either while this one had the ledger open.
func (t *tx) sameFormat() error {
	if t.known.isFormat || t.fleet != nil { // a fleet's connection has asked
		return nil
	}
	var text string
	var mark *string
	err := t.row(`SELECT value, (SELECT value FROM meta WHERE key = ?) FROM meta
		WHERE key = 'format'`, moveKey).Scan(&text, &mark)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	switch n, err := strconv.Atoi(text); {
	case err != nil:
		return damaged("read the ledger's format", err)
	case mark != nil && !t.moves:
		m, err := readMark(*mark)
		return cmpOr(err, m.refusal())
	case n != format:
		return x402.Errorf(x402.LedgerUnavailable,
			"the ledger has format %d, this program needs %d", n, format).
			WithHint("use the version of x402-wallet that wrote it")
	}
	t.known.isFormat = true
	return nil
}

// InPlace says whether ledger.db still is the file that was opened: what is written into one that
// was moved away or deleted is found by nobody, and another one in its place knows another budget.
func (s *Store) InPlace() error {
	if s.fleet != nil { // each connection is compared when it is made
		return nil
	}
	info, err := os.Lstat(filepath.Join(s.home, FileName))
	switch {
	case err == nil && os.SameFile(info, s.file):
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return x402.Errorf(x402.LedgerUnavailable, "look for the ledger: %w", err)
	}
	return x402.Errorf(x402.LedgerCorrupt,
		"the ledger %s was moved, deleted or replaced while this process had it open", FileName).
		WithHint("put it back into its place; nothing is paid without it")
}

// Whether open may make the file.
const existingFile, createFile = "rw", "rwc"

// open opens the database. Nothing but SQLite ever opens ledger.db, ledger.db-wal or ledger.db-shm: when a
// process closes any descriptor of a file, the kernel drops all of its POSIX locks on it, those of SQLite
// among them (https://www.sqlite.org/howtocorrupt.html §2.2). first are pragmas before all others; only
// Create may pass one that writes, or each new connection would wait for other processes.
func open(home string, o Options, mode string, first ...string) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	// With synchronous=FULL a commit is on the disk when it returns; macOS needs fullfsync for that. A log
	// that content made longer than 64 MiB is cut again. 4000 pages are 16 MiB of log: with SQLite's default
	// of a thousand it would be copied into ledger.db every fifty payments.
	dsn := fileURI(filepath.Join(home, FileName)) +
		fmt.Sprintf("?mode=%s&_pragma=busy_timeout(%d)", mode, busyWait.Milliseconds())
	for _, pragma := range append(first, "journal_mode(WAL)", "journal_size_limit(67108864)",
		"synchronous(FULL)", "fullfsync(ON)", "checkpoint_fullfsync(ON)", "wal_autocheckpoint(4000)",
		"trusted_schema(OFF)", "temp_store(MEMORY)") {
		dsn += "&_pragma=" + pragma
	}
	write, err := newPool(dsn, 1)
	if err != nil {
		return nil, ledgerError("open the ledger", err)
	}
	read, err := newPool(dsn+"&_pragma=query_only(1)&_pragma=cache_size(-8000)", 4)
	if err != nil {
		return nil, ledgerError("open the ledger", err)
	}
	d := &database{
		write: write, read: read, now: o.Now, home: home, stores: 1, lock: lockFile, moves: o.moves,
		writeLock: newFileLock(home, "ledger"), checkpointLock: newFileLock(home, "mark"),
	}
	return &Store{database: d, contentQuota: o.ContentQuota, alerted: o.Alerted}, nil
}

// Share returns another Store of the same open ledger, with options of its own; o.Now is not used. What one
// of them works on, the others take for another process's. It reports false if all Stores are closed.
func (s *Store) Share(o Options) (shared *Store, open bool) {
	s.storesLock.Lock()
	defer s.storesLock.Unlock()
	if s.stores == 0 {
		return nil, false
	}
	s.stores++
	return &Store{database: s.database, contentQuota: o.ContentQuota, alerted: o.Alerted}, true
}

// Close ends this Store. The last one of a ledger ends this process's part in it.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		s.selfLock.Lock()
		if s.self != nil {
			s.self.release()
			s.self = nil
		}
		s.selfLock.Unlock()
		err = s.leave()
	})
	return err
}

// leave closes the database after its last Store.
func (d *database) leave() error {
	d.storesLock.Lock()
	defer d.storesLock.Unlock()
	d.stores--
	if d.stores > 0 {
		return nil
	}
	if d.fleet != nil {
		return d.fleet.close()
	}
	return errors.Join(d.read.close(), d.write.close(), d.writeLock.close(), d.checkpointLock.close(),
		d.channelLocks.close())
}
