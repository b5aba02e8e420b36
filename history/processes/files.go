// Package processes says which processes of a ledger live: by locked files in the home that they share, or by
// rows of the server that they share.
//
// What must stay true: a process that died is soon known as dead, and one that nobody can tell about counts
// as dead on one computer and as alive at a server. Then the worst is that the same signed bytes are sent
// twice, and not that the same call is another purchase.
package processes

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// runFolder is the folder of the locked files.
const runFolder = "run"

// files is a process that holds a lock on a file of its own in <home>/run. The kernel lets go of the lock
// when the process dies, however it dies.
type files struct {
	home string
	lock func(*os.File) (held bool, err error)

	mu   sync.Mutex
	id   string // empty before Join
	file *os.File
}

// Files returns a process of a ledger in SQLite.
func Files(home string) history.Process { return &files{home: home, lock: sqldb.LockFile} }

func (p *files) Join() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id != "" {
		return p.id, nil
	}
	dir := filepath.Join(p.home, runFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", x402.Errorf(x402.LedgerUnavailable, "make the run directory: %w", err)
	}
	id := history.RandomID("run_")
	file, err := os.OpenFile(filepath.Join(dir, id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", x402.Errorf(x402.LedgerUnavailable, "make this process's lock: %w", err)
	}
	if held, err := p.lock(file); err != nil || !held {
		file.Close()
		return "", x402.Errorf(x402.LedgerUnavailable, "take this process's lock: %w", err)
	}
	if err := p.checkLocks(file); err != nil {
		os.Remove(file.Name())
		file.Close()
		return "", err
	}
	p.id, p.file = id, file
	return id, nil
}

// checkLocks refuses a file system that gives one lock to two: on it every process would take the
// others for ended.
func (p *files) checkLocks(locked *os.File) error {
	if !locksWork(locked.Name(), p.lock) {
		return x402.Errorf(x402.LedgerUnavailable, "the file system of %s has no working locks", p.home).
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

func (p *files) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id != "" {
		os.Remove(p.file.Name())
		p.file.Close()
		p.id = ""
	}
}

// Alive takes an id that no process can have for dead, and one whose lock file cannot be looked at.
func (p *files) Alive(id string) bool {
	if id == "" || !strings.HasPrefix(id, "run_") || filepath.Base(id) != id {
		return false
	}
	if id == p.Self() {
		return true
	}
	path := filepath.Join(p.home, runFolder, id)
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

func (p *files) Self() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}
