package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"x402-wallet/x402"
)

// Backup is a copy of a ledger that Store.Backup made.
type Backup struct {
	Payments int64
	Events   int64 // rows of the audit chain
	Bytes    int64
}

// backupStep is how many pages are copied between two looks at whether the caller left.
const backupStep = 1 << 14

// Backup copies the ledger into a new file while other processes go on paying. The copy is the ledger of one
// moment. It is read again, every row of it, before it gets its name; a copy that fails leaves no file.
// An existing file is fs.ErrExist, wrapped in LEDGER_UNAVAILABLE.
func (s *Store) Backup(ctx context.Context, file string) (b Backup, err error) {
	if s.fleet != nil {
		return b, x402.Errorf(x402.SetupFailed, "this ledger is in PostgreSQL").
			WithHint("back it up there, with pg_dump or continuous archiving")
	}
	if err := s.mayBackUpTo(file); err != nil {
		return b, err
	}
	temp, err := os.MkdirTemp(filepath.Dir(file), ".ledger-backup-")
	if err != nil {
		return b, diskError("make the backup", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()

	copied := filepath.Join(temp, FileName)
	if err := s.copyTo(ctx, copied); err != nil {
		return b, err
	}
	if err := os.Chmod(copied, 0o600); err != nil {
		return b, diskError("make the backup", err)
	}
	if b, err = checkBackup(ctx, temp); err != nil {
		return b, fmt.Errorf("check the backup: %w", err)
	}

	if err := s.mayBackUpTo(file); err != nil {
		return b, err
	}
	err = os.Rename(copied, file)
	if err == nil {
		err = syncDirectory(filepath.Dir(file))
	}
	return b, diskError("name the backup", err)
}

// mayBackUpTo refuses a file that exists, and the names in the home that SQLite uses.
func (s *Store) mayBackUpTo(file string) error {
	dir, err := filepath.Abs(filepath.Dir(file))
	home, errHome := filepath.Abs(s.home)
	if err = errors.Join(err, errHome); err != nil {
		return diskError("make the backup", err)
	}
	if dir == home && strings.HasPrefix(filepath.Base(file), FileName) {
		return x402.Errorf(x402.InvalidArgument, "%s in the wallet's home is a name of the ledger itself",
			filepath.Base(file)).WithHint("choose another name or, better, another disk")
	}
	switch _, err := os.Lstat(file); {
	case err == nil:
		return x402.Errorf(x402.LedgerUnavailable, "make the backup %s: %w", file, fs.ErrExist).
			WithHint("choose a new name: a backup replaces no file")
	case !errors.Is(err, fs.ErrNotExist):
		return diskError("make the backup", err)
	}
	return nil
}

// copyTo copies what one reading transaction sees, page by page, by SQLite's backup API.
func (s *Store) copyTo(ctx context.Context, path string) error {
	return s.read.with(ctx, func(c *conn) error {
		return c.transaction(patient(ctx), beginReading, func() error {
			err := c.Raw(func(driver any) error { return copyPages(ctx, driver, path) })
			return ledgerError("copy the ledger", err)
		})
	})
}

func copyPages(ctx context.Context, from any, path string) (err error) {
	source, ok := from.(interface {
		NewBackup(uri string) (*sqlite.Backup, error)
	})
	if !ok {
		return errors.New("this SQLite makes no backups")
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

// checkBackup reads a copy as a ledger: its pages, and every row against its audit chain.
func checkBackup(ctx context.Context, dir string) (b Backup, err error) {
	s, err := OpenMoving(ctx, dir, Options{}) // one that is marked as moving can be backed up, too
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	if err := s.view(ctx, (*tx).pagesAreSound); err != nil {
		return b, err
	}
	rows, err := s.Verify(ctx, Head{})
	if err != nil {
		return b, err
	}
	b.Events = int64(rows)
	err = s.view(ctx, func(t *tx) error {
		return t.row(`SELECT (SELECT count(*) FROM payments),
			(SELECT page_count FROM pragma_page_count()) * (SELECT page_size FROM pragma_page_size())`).
			Scan(&b.Payments, &b.Bytes)
	})
	return b, err
}

// pagesAreSound asks SQLite whether its file is whole.
func (t *tx) pagesAreSound() error {
	text, err := scanText(t.slowRow(`PRAGMA integrity_check(1)`))
	if err == nil && text != "ok" {
		err = damaged("check the ledger's file", errors.New(text))
	}
	return err
}

// fileURI is a path as SQLite takes it in a URI.
func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a Windows drive
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath()
}
