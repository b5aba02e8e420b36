package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"x402-wallet/internal/ownfile"
	"x402-wallet/x402"
)

// Backup is a copy of a ledger that Store.Backup made.
type Backup struct {
	Payments int64
	Events   int64 // rows of the audit chain
	Bytes    int64
}

// Backup copies the ledger into a new file while other processes go on paying. The copy is the ledger of one
// moment. It is read again, every row of it, before it gets its name; a copy that fails leaves no file.
// An existing file is fs.ErrExist, wrapped in LEDGER_UNAVAILABLE.
func (s *Store) Backup(ctx context.Context, file string) (b Backup, err error) {
	if s.Shared() {
		return b, x402.Errorf(x402.InvalidArgument, "the ledger is in PostgreSQL, which has its own backups").
			WithHint("use those, such as pg_basebackup or pg_dump")
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
	if err := s.db.CopyTo(ctx, copied); err != nil {
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
		err = ownfile.SyncDir(filepath.Dir(file))
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
	return isNew(file)
}

// isNew refuses a file that exists.
func isNew(file string) error {
	switch _, err := os.Lstat(file); {
	case err == nil:
		return x402.Errorf(x402.LedgerUnavailable, "make %s: %w", file, fs.ErrExist).
			WithHint("choose a new name: a copy of the ledger replaces no file")
	case !errors.Is(err, fs.ErrNotExist):
		return diskError("make the file", err)
	}
	return nil
}

// checkBackup reads a copy as a ledger: its pages, and every row against its audit chain.
func checkBackup(ctx context.Context, dir string) (b Backup, err error) {
	s, err := Open(ctx, dir, Options{})
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	if err := s.view(ctx, func(t *tx) error { return t.PagesAreSound() }); err != nil {
		return b, err
	}
	rows, err := s.Verify(ctx, Head{})
	if err != nil {
		return b, err
	}
	b.Events = int64(rows)
	err = s.view(ctx, func(t *tx) error {
		return t.Row(`SELECT count(*) FROM payments`).Scan(&b.Payments)
	})
	if info, failed := os.Lstat(filepath.Join(dir, FileName)); failed == nil {
		b.Bytes = info.Size()
	}
	return b, err
}

func diskError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
}
