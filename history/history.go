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
// share a transaction), walsync.go (what is on the disk when), filelock.go (processes that take turns),
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
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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
const format = 8

// lockWait bounds how long a process waits for another one's transaction. Transactions here take
// milliseconds and never span the network, so waiting longer means something is wrong. A caller who
// has less time waits no longer than that (patience.go).
const lockWait = 5 * time.Second

// busyWait is how long SQLite waits by itself, between two looks at whether the caller still does.
const busyWait = 50 * time.Millisecond

// FileName is the ledger's name in the wallet's home (SPEC §2).
const FileName = "ledger.db"

// Store is an open ledger. It is safe for concurrent use, by other processes too; Close it.
//
// Errors: what a method documents (sentinels and types of this package); else an *x402.Error:
// LEDGER_CORRUPT, where the file is damaged or another one, and nothing is paid until a person has
// looked; LEDGER_UNAVAILABLE, for trouble of the moment, a context that ended among it; INTERNAL,
// for a defect of this package. With any error nothing was written, unless the commit itself
// failed: then the change may be on disk, and repeating it finds that out.
type Store struct {
	write *pool // one connection: this process's writers queue here instead of in SQLite
	read  *pool
	now   func() time.Time
	home  string
	file  os.FileInfo // ledger.db when it was opened
	queue commitQueue
	wal   *walSync

	followed followed

	contentQuota int64
	alerted      func() // may be nil
	moves        bool   // it may be marked: see OpenMoving
	arrival      *arrival

	writeLock, checkpointLock *fileLock
	channelLocks              channelLocks

	ledgerID         atomic.Pointer[string] // nil: not read yet
	answersForgotten atomic.Int64           // when forgetAnswers last looked, microseconds

	fleet *fleet // nil: the ledger is SQLite's, in the home

	self     *instance // nil before the first payment
	selfLock sync.Mutex
	lock     func(*os.File) (held bool, err error)
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

// Create makes the ledger of a new wallet. It never touches one that is there.
func Create(ctx context.Context, home string, o Options) error {
	path := filepath.Join(home, FileName)
	// Before SQLite does, so that it is never readable by others.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return x402.Errorf(x402.LedgerUnavailable, "create the ledger: %w", err)
	}
	file.Close()
	// Before anything else is in it: what is removed can be given back to the disk in small steps
	// (content.go).
	s, err := open(home, o, "auto_vacuum(INCREMENTAL)")
	if err != nil {
		return err
	}
	defer s.Close()
	s.moves = true // it has no format yet
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
	}
	if err := isDatabase(path); err != nil {
		return nil, err
	}
	s, err := open(home, o)
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

// sameFormat refuses a ledger of another format. What holds money asks again: a newer program may
// have changed the ledger while this one had it open.
func (t *tx) sameFormat() error {
	if t.known.isFormat || t.fleet != nil { // a fleet's connection has asked
		return nil
	}
	var text string
	err := t.row(`SELECT value FROM meta WHERE key = 'format'`).Scan(&text)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	switch n, err := strconv.Atoi(text); {
	case err != nil:
		return damaged("read the ledger's format", err)
	case n == -format && t.moves:
	case n == -format:
		m, err := t.mark()
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

// isDatabase looks before SQLite does: opening an empty or short file would write a fresh header into it.
func isDatabase(path string) error {
	const magic = "SQLite format 3\x00" // https://www.sqlite.org/fileformat.html §1.2
	file, err := os.Open(path)
	if err != nil {
		return x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	}
	defer file.Close()
	head := make([]byte, len(magic))
	_, err = io.ReadFull(file, head)
	isShort := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case err != nil && !isShort:
		return x402.Errorf(x402.LedgerUnavailable, "open the ledger: %w", err)
	case isShort, string(head) != magic:
		return damaged("open the ledger", errors.New("it is not a database"))
	}
	return nil
}

// open opens the database. first are pragmas before all others: none that writes, but in Create, or each new
// connection would have to wait for whoever writes.
func open(home string, o Options, first ...string) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	path := filepath.ToSlash(filepath.Join(home, FileName))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a Windows drive
	}
	// With synchronous=NORMAL a commit is in the log when it returns, and what has to be on the disk is
	// flushed by walSync. A log that content made longer than 64 MiB is cut again. 4000 pages are 16 MiB of
	// log: with SQLite's thousand it would be copied, and the disk be waited for, every fifty payments.
	dsn := "file://" + (&url.URL{Path: path}).EscapedPath() +
		fmt.Sprintf("?mode=rw&_pragma=busy_timeout(%d)", busyWait.Milliseconds())
	for _, pragma := range append(first, "journal_mode(WAL)", "journal_size_limit(67108864)",
		"synchronous(NORMAL)", "wal_autocheckpoint(4000)", "trusted_schema(OFF)", "temp_store(MEMORY)") {
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
	return &Store{
		write: write, read: read, now: o.Now, home: home, lock: lockFile, contentQuota: o.ContentQuota,
		alerted:   o.Alerted,
		moves:     o.moves,
		wal:       &walSync{path: filepath.Join(home, FileName+"-wal"), flush: flushData},
		writeLock: newFileLock(home, "ledger"), checkpointLock: newFileLock(home, "mark"),
	}, nil
}

// Close ends this process's part in the ledger.
func (s *Store) Close() error {
	if s.fleet != nil {
		return s.fleet.close()
	}
	s.selfLock.Lock()
	defer s.selfLock.Unlock()
	if s.self != nil {
		s.self.release()
		s.self = nil
	}
	return errors.Join(s.read.close(), s.write.close(), s.writeLock.close(), s.checkpointLock.close(),
		s.channelLocks.close())
}
