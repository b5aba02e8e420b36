package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// A process that pays holds a lock on a file of its own in <home>/run. The kernel lets go of it
// when the process dies, however it dies, so any other process can distinguish a payment somebody
// is working on from one whose process is gone.

// runFolder is the folder of these files.
const runFolder = "run"

type instance struct {
	id   string
	file *os.File
}

// instance returns this process's id, taking its lock the first time.
func (s *Store) instance() (string, error) {
	if s.replica != nil {
		return s.replica.instance()
	}
	s.selfLock.Lock()
	defer s.selfLock.Unlock()
	if s.self != nil {
		return s.self.id, nil
	}
	dir := filepath.Join(s.home, runFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", x402.Errorf(x402.LedgerUnavailable, "make the run directory: %w", err)
	}
	id := newID("run_")
	file, err := os.OpenFile(filepath.Join(dir, id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", x402.Errorf(x402.LedgerUnavailable, "make this process's lock: %w", err)
	}
	if held, err := s.lock(file); err != nil || !held {
		file.Close()
		return "", x402.Errorf(x402.LedgerUnavailable, "take this process's lock: %w", err)
	}
	if err := s.checkLocks(file); err != nil {
		os.Remove(file.Name())
		file.Close()
		return "", err
	}
	s.self = &instance{id: id, file: file}
	return id, nil
}

// checkLocks refuses a file system that gives one lock to two: on it every process would take the
// others for ended.
func (s *Store) checkLocks(locked *os.File) error {
	if !locksWork(locked.Name(), s.lock) {
		return x402.Errorf(x402.LedgerUnavailable, "the file system of %s has no working locks", s.home).
			WithHint("keep the wallet's home on a local disk: processes on one wallet recognize each other " +
				"by locks; nothing is paid without")
	}
	return nil
}

// locksWork reports whether a lock that is held is not given to another one.
func locksWork(locked string, lock func(*os.File) (bool, error)) bool {
	again, err := os.OpenFile(locked, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer again.Close()
	held, err := lock(again)
	return err == nil && !held
}

func (i *instance) release() {
	os.Remove(i.file.Name())
	i.file.Close()
}

// Alive reports whether a lease owner or waiter still runs. An id that no process can have is not
// alive, and neither is one whose lock file cannot be looked at: then the payment is taken up, and
// the same signed bytes go out twice at the worst. Were it taken for alive, the same call would be
// another purchase and pay again.
func (s *Store) Alive(id string) bool {
	if s.replica != nil {
		return s.replica.alive(id)
	}
	if id == "" || !strings.HasPrefix(id, "run_") || filepath.Base(id) != id {
		return false
	}
	s.selfLock.Lock()
	own := s.self != nil && s.self.id == id
	s.selfLock.Unlock()
	if own {
		return true
	}
	path := filepath.Join(s.home, runFolder, id)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	// exclusive, two that look at once would find each other, and pay again
	held, err := sqldb.ShareFile(file)
	if err != nil {
		return false
	}
	if held { // its process is gone: tidy up
		os.Remove(path)
	}
	return !held
}

// Self is this process's id, "" before its first payment.
func (s *Store) Self() string {
	if s.replica != nil {
		return s.replica.self()
	}
	s.selfLock.Lock()
	defer s.selfLock.Unlock()
	if s.self == nil {
		return ""
	}
	return s.self.id
}

// LedgerID is the random name the ledger was created with. It never changes, and is read once.
func (s *Store) LedgerID(ctx context.Context) (string, error) {
	if known := s.ledgerID.Load(); known != nil {
		return *known, nil
	}
	id, err := readOnce(ctx, s, func(t *tx) (string, error) {
		id, err := scanText(t.Row(`SELECT value FROM meta WHERE key = 'ledger_id'`))
		return id, sqldb.Otherwise(err, sqldb.Damaged("read the ledger's id", errors.New("it has none")))
	})
	if err == nil {
		s.ledgerID.Store(&id)
	}
	return id, err
}
