// Package history is the ledger: what the wallet paid, for ever. It holds every payment with its evidence,
// the content it bought and an audit chain, in a SQLite file that several processes share or in a PostgreSQL
// schema that the replicas of a service share.
//
// What must stay true: a payment's row is durable before the step it announces is taken, a state changes only
// as the table in payment.go allows, and a budget is decided in the same transaction that holds its money.
//
// The files: payment.go (what a payment is, and which state follows which), facts.go and totals.go (what a
// decision needs to know), reserve.go (hold), sign.go (a signature, before it is handed out), write.go (every
// other step, and the audit chain), lease.go (which process works on a payment, who waits for it), query.go
// (one payment, and those that are unfinished), payees.go (payees and prices, for the rules), approvals.go,
// approvaluse.go, approvallist.go and asking.go (questions to a person), freeze.go and rules.go (what the
// owner said; the chain's head), channels.go (vouchers).
//
// What a signature believes: sealed.go (the chain's sealed rows), followed.go (what this process has read of
// the chain) and accept.go (a ledger as the owner accepts it).
//
// Beside the money: contents.go and alerts.go (what packages content and alerts hear of), and
// subscriptions.go. Below all of it: tx.go (a transaction), and packages audit (the chain), seals and
// memory (what sealed rows say), schema (the tables) and sqldb (the database). Packages of their own, which
// this one does not import: ledgers (opening one), processes (which of them live), asking (questions to a
// person), content (what was bought), backup (copies), report (searching, totals, books), alerts (what the
// owner is told), subscriptions (their runs and proposals) and verify (a whole ledger against its chain).
package history

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// format is what package schema makes. A ledger of another one is refused.
const format = 1

// FileName is the ledger's name in the wallet's home.
const FileName = "ledger.db"

// Store is an open ledger. It is safe for concurrent use, by other processes too; Close it. A process opens
// a ledger once, and gives others a Store of it by Share.
//
// Errors: what a method documents (sentinels and types of this package); else those of sqldb.DB. With any
// error nothing was written, unless the commit itself failed: then the change may be on disk, and repeating
// it finds that out.
type Store struct {
	*database

	contents Contents
	alerts   Alerts
	closing  sync.Once

	process Process
}

// database is what the Stores of one open ledger share.
type database struct {
	db   *sqldb.DB
	home string
	join func() Process

	storesLock sync.Mutex
	stores     int // that are open; the last one closes the database

	followed followed
	newest   atomic.Pointer[Head] // the row that this process sealed last; nil: it sealed none

	checkpointLock *sqldb.FileLock

	ledgerID atomic.Pointer[string] // nil until it is read
}

type Options struct {
	Now func() time.Time // default time.Now
	// Contents keeps what payments buy. Without it a Store can hold no money.
	Contents Contents
	// Alerts hears of what the owner may have to be told. It may be nil.
	Alerts Alerts
	// AliveFor is for how long a replica is taken for alive after it said so. Default 10 s; tests set it.
	AliveFor time.Duration
}

// Found writes the first rows of a new ledger.
func Found(d *sqldb.Tx) error {
	return (&tx{Tx: d, known: &known{}, followed: &followed{}}).found(RandomID("led_"))
}

// found writes the first rows of a ledger.
func (t *tx) found(id string) error {
	_, err := t.Exec(`INSERT INTO meta VALUES ('format', ?), ('ledger_id', ?)`, strconv.Itoa(format), id)
	if err != nil {
		return err
	}
	return t.audit(0, audit.CreatedEvent, map[string]any{"format": format, "ledger": id})
}

// New returns a Store of an open database, which package ledgers opens. home is where this process has its
// files, and join makes the process of each Store. A database that is not a ledger is LEDGER_CORRUPT.
func New(ctx context.Context, db *sqldb.DB, home string, join func() Process, o Options) (*Store, error) {
	s := (&Store{database: &database{db: db, home: home, join: join, stores: 1,
		checkpointLock: sqldb.NewFileLock(home, "mark")}}).with(o)
	if err := s.view(ctx, (*tx).isLedger); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// with sets the options that each Store of a ledger has of its own.
func (s *Store) with(o Options) *Store {
	s.contents, s.alerts, s.process = o.Contents, o.Alerts, s.join()
	if s.contents == nil {
		s.contents = noContents{}
	}
	if s.alerts == nil {
		s.alerts = nobody{}
	}
	return s
}

// isLedger refuses a database that is not a ledger, or one of another format.
func (t *tx) isLedger() error {
	is, err := t.HasTable("meta")
	if err == nil && !is {
		err = sqldb.Damaged("open the ledger", errors.New("it has no table of a ledger"))
	}
	if err != nil {
		return err
	}
	return t.sameFormat()
}

// sameFormat refuses a ledger of another format.
func (t *tx) sameFormat() error {
	text, err := sqldb.ScanText(t.Row(`SELECT value FROM meta WHERE key = 'format'`))
	if sqldb.Otherwise(err, nil) != nil {
		return err
	}
	return CheckFormat(text)
}

// CheckFormat refuses a ledger that says of itself that it has another format.
func CheckFormat(text string) error {
	switch n, err := strconv.Atoi(text); {
	case err != nil:
		return sqldb.Damaged("read the ledger's format", err)
	case n != format:
		return x402.Errorf(x402.LedgerUnavailable, "the ledger has format %d, this program needs %d", n,
			format).
			WithHint("use the version of x402-wallet that wrote it")
	}
	return nil
}

// Home is where the ledger, or this replica of it, has its files.
func (s *Store) Home() string { return s.home }

// CopyTo copies ledger.db into a new file: see sqldb.DB.CopyTo.
func (s *Store) CopyTo(ctx context.Context, path string) error { return s.db.CopyTo(ctx, path) }

// InPlace says whether the ledger still is the one that was opened: what is written into a file that
// was moved away or deleted is found by nobody, and another one in its place knows another budget.
func (s *Store) InPlace() error { return s.db.InPlace() }

// Share returns another Store of the same open ledger, with options of its own; o.Now is not used. What one
// of them works on, the others take for another process's. It reports false if all Stores are closed.
func (s *Store) Share(o Options) (shared *Store, open bool) {
	s.storesLock.Lock()
	defer s.storesLock.Unlock()
	if s.stores == 0 {
		return nil, false
	}
	s.stores++
	return (&Store{database: s.database}).with(o), true
}

// Close ends this Store. The last one of a ledger ends this process's part in it.
func (s *Store) Close() (err error) {
	s.closing.Do(func() { err = s.leave() })
	return err
}

// leave ends the Store's process, and closes the database after its last Store. Nobody gets another Store of
// it meanwhile, which would be a dead process's.
func (s *Store) leave() error {
	s.storesLock.Lock()
	defer s.storesLock.Unlock()
	s.process.Leave()
	s.stores--
	if s.stores > 0 {
		return nil
	}
	return errors.Join(s.db.Close(), s.checkpointLock.Close())
}

// Shared reports whether replicas with other homes may use the ledger.
func (s *Store) Shared() bool { return s.db.IsServer() }
