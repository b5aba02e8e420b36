// Package backup copies a ledger: into a file, into PostgreSQL, and back.
//
// What must stay true: a copy is compared with its audit chain before it counts, and of two ledgers that can
// pay with the same money one is frozen.
//
// The files: backup.go (into a file), copy.go (into another database).
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/sqlite"
	"x402-wallet/history/verify"
	"x402-wallet/internal/ownfile"
	"x402-wallet/x402"
)

type Copy struct {
	Payments int64
	Events   int64 // rows of the audit chain
	Bytes    int64
}

// ToFile copies the ledger into a new file while other processes go on paying. The copy is the ledger of one
// moment. It is read again, every row of it, before it gets its name; a copy that fails leaves no file.
// An existing file is fs.ErrExist, wrapped in LEDGER_UNAVAILABLE.
func ToFile(ctx context.Context, s *history.Store, file string) (made Copy, err error) {
	if s.Shared() {
		return made, x402.Errorf(x402.InvalidArgument,
			"the ledger is in PostgreSQL, which has its own backups").
			WithHint("use those, such as pg_basebackup or pg_dump")
	}
	if err := mayBackUpTo(s, file); err != nil {
		return made, err
	}
	temp, err := os.MkdirTemp(filepath.Dir(file), ".ledger-backup-")
	if err != nil {
		return made, diskError("make the backup", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()

	copied := filepath.Join(temp, history.FileName)
	if err := s.CopyTo(ctx, copied); err != nil {
		return made, err
	}
	if err := os.Chmod(copied, 0o600); err != nil {
		return made, diskError("make the backup", err)
	}
	if made, err = check(ctx, temp); err != nil {
		return made, fmt.Errorf("check the backup: %w", err)
	}

	if err := mayBackUpTo(s, file); err != nil {
		return made, err
	}
	err = os.Rename(copied, file)
	if err == nil {
		err = ownfile.SyncDir(filepath.Dir(file))
	}
	return made, diskError("name the backup", err)
}

// mayBackUpTo refuses a file that exists, and the names in the home that SQLite uses.
func mayBackUpTo(s *history.Store, file string) error {
	dir, err := filepath.Abs(filepath.Dir(file))
	home, errHome := filepath.Abs(s.Home())
	if err = errors.Join(err, errHome); err != nil {
		return diskError("make the backup", err)
	}
	if dir == home && strings.HasPrefix(filepath.Base(file), history.FileName) {
		return x402.Errorf(x402.InvalidArgument, "%s in the wallet's home is a name of the ledger itself",
			filepath.Base(file)).WithHint("choose another name or, better, another disk")
	}
	return isNew(file)
}

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

// check reads a copy as a ledger: its pages, and every row against its audit chain.
func check(ctx context.Context, dir string) (made Copy, err error) {
	db, err := sqlite.Open(sqlite.File{Home: dir, Name: history.FileName})
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	err = db.View(ctx, func(t *sqldb.Tx) error {
		if err := t.PagesAreSound(); err != nil {
			return err
		}
		rows, err := verify.Tx(t)
		if err != nil {
			return err
		}
		made.Events = int64(rows)
		return t.Row(`SELECT count(*) FROM payments`).Scan(&made.Payments)
	})
	if info, failed := os.Lstat(filepath.Join(dir, history.FileName)); failed == nil {
		made.Bytes = info.Size()
	}
	return made, err
}

func diskError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
}
