// Package book is a paywall's book of sales: each payment that it was shown, and the channels of
// batch-settlement that it is paid out of. It is a database of its own beside the ledger, because a paywall
// sells without a wallet, and a wallet pays without a paywall.
//
// What must stay true: one payment buys one run, whatever process it is shown to, and what a buyer signed for
// is durable before they get what they bought.
//
// The files: book.go (a database, and how it is made), copy.go (into another one), sales.go, channels.go.
package book

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/sqldb/sqlite"
	"x402-wallet/x402"
)

//go:embed schema.sql
var schemaFile string

// schema is schema.sql without its comments.
var schema = sync.OnceValue(func() string { return sqldb.WithoutComments(schemaFile) })

// format is what schema.sql makes. A book of another one is refused.
const format = 1

// FileName is the book's name in a home. In PostgreSQL it is the schema x402_sales.
const (
	FileName       = "sales.db"
	postgresSchema = "x402_sales"
)

// Book is an open book. It is safe for concurrent use, by other processes too; Close it.
//
// Errors: what a method documents (sentinels and types of this package); else those of sqldb.DB. With any
// error nothing was written, unless the commit itself failed: then the change may be on disk, and repeating
// it finds that out.
type Book struct {
	db               *sqldb.DB
	isShared         bool
	answersForgotten atomic.Int64 // when forgetAnswers last looked, microseconds
}

var (
	// ErrNone says that there is no book yet: nothing was sold.
	ErrNone = errors.New("nothing was sold yet: there is no book of sales")
	// ErrNotFound says that what was asked for is not in the book.
	ErrNotFound = errors.New("it is not in the book")
	// ErrTransition says that a sale may not go where it was sent.
	ErrTransition = errors.New("the sale's state does not allow this")

	errNoSale    = fmt.Errorf("no such sale: %w", ErrNotFound)
	errNoChannel = fmt.Errorf("no such channel: %w", ErrNotFound)
)

// Place says where a book is.
type Place struct {
	Home string // the folder that has sales.db
	// Server is the database of PostgreSQL that has the book, or nil if Home has it. Its Schema, Check and
	// Now are not used.
	Server *postgres.Server
	Now    func() time.Time // default time.Now, and on Server the server's clock
}

// Make makes a book where there is none, and opens it.
func Make(ctx context.Context, p Place) (*Book, error) {
	var err error
	if p.Server != nil {
		_, err = postgres.Make(ctx, p.postgres(), schema(), found)
	} else {
		err = sqlite.Create(ctx, p.sqlite(), schema(), found)
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return Open(ctx, p)
}

// found writes the first rows of a book.
func found(t *sqldb.Tx) error {
	_, err := t.Exec(`INSERT INTO meta VALUES ('format', ?), ('book_id', ?)`, fmt.Sprint(format),
		newID("book_", t.Now))
	return err
}

// Open opens the book that Make made, or returns ErrNone.
func Open(ctx context.Context, p Place) (*Book, error) {
	var db *sqldb.DB
	var err error
	if p.Server != nil {
		db, err = postgres.Open(p.postgres())
	} else {
		db, err = p.openFile()
	}
	if err != nil {
		return nil, err
	}
	b := &Book{db: db, isShared: p.Server != nil}
	err = b.view(ctx, (*tx).isBook)
	if errors.Is(err, ErrNone) && p.Server == nil { // a file gets its name with its tables
		err = sqldb.Damaged("open the book of sales", errors.New("it has no tables"))
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

func (p Place) sqlite() sqlite.File { return sqlite.File{Home: p.Home, Name: FileName, Now: p.Now} }

func (p Place) openFile() (*sqldb.DB, error) {
	switch info, err := os.Lstat(filepath.Join(p.Home, FileName)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNone
	case err != nil:
		return nil, x402.Errorf(x402.LedgerUnavailable, "open the book of sales: %w", err)
	case !info.Mode().IsRegular():
		return nil, x402.Errorf(x402.LedgerUnavailable, "the book of sales %s is not a regular file",
			FileName)
	}
	return sqlite.Open(p.sqlite())
}

// postgres is the database with the book's schema. Each later connection has to have the book of the first
// one: behind the same address there may be another server by now.
func (p Place) postgres() postgres.Server {
	o := *p.Server
	o.Schema, o.Now = postgresSchema, p.Now
	var mu sync.Mutex
	var book string
	o.Check = func(ask func(query string) (string, error)) error {
		id, err := ask(`SELECT coalesce(CAST(to_regclass('meta') AS TEXT), '')`)
		if err == nil && id != "" {
			id, err = ask(`SELECT value FROM meta WHERE key = 'book_id'`)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			return err
		case book != "" && book != id:
			return x402.Errorf(x402.LedgerCorrupt, "the server has another book of sales now").
				WithHint("nothing is sold until the owner has looked: see ledger.url")
		}
		book = id
		return nil
	}
	return o
}

// isBook refuses a book of another format; ErrNone if there are no tables.
func (t *tx) isBook() error {
	is, err := t.HasTable("meta")
	if err != nil || !is {
		return cmp.Or(err, ErrNone)
	}
	var number string
	err = t.Row(`SELECT value FROM meta WHERE key = 'format'`).Scan(&number)
	if err == nil && number != fmt.Sprint(format) {
		err = x402.Errorf(x402.LedgerUnavailable, "the book of sales has format %s, this program needs %d",
			number, format).WithHint("use the version of x402-wallet that wrote it")
	}
	return err
}

// SharedID is the id of a book that homes share, in PostgreSQL, or empty.
func (b *Book) SharedID(ctx context.Context) (id string, err error) {
	if !b.isShared {
		return "", nil
	}
	return read(ctx, b, func(t *tx) (string, error) {
		err := t.Row(`SELECT value FROM meta WHERE key = 'book_id'`).Scan(&id)
		return id, err
	})
}

// Close ends this process's part in the book.
func (b *Book) Close() error { return b.db.Close() }

// tx is a transaction on the book. It never leaves this package.
type tx struct{ *sqldb.Tx }

// write runs f in a durable transaction: see sqldb.DB.Write.
func (b *Book) write(ctx context.Context, f func(*tx) error) error {
	return b.db.Write(ctx, func(t *sqldb.Tx) error { return f(&tx{t}) })
}

func (b *Book) view(ctx context.Context, f func(*tx) error) error {
	return b.db.View(ctx, func(t *sqldb.Tx) error { return f(&tx{t}) })
}

func read[T any](ctx context.Context, b *Book, f func(*tx) (T, error)) (T, error) {
	return sqldb.Read(ctx, b.db, func(t *sqldb.Tx) (T, error) { return f(&tx{t}) })
}

// newID is the time in Unix milliseconds, twelve hex digits, and 80 random bits, behind a prefix that says
// what it names.
func newID(prefix string, at time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())<<16)
	b = append(b[:6], make([]byte, 10)...)
	rand.Read(b[6:]) // never fails (crypto/rand)
	return prefix + hex.EncodeToString(b)
}
