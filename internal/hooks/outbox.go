package hooks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/pattern"
)

// Of each payment that the program after it is to be told of there is an empty file in Dir, by its id. It is
// there, on the disk, before anything is signed, and goes when the program was told: so whatever ends this
// process, another one tells it. What came of the payment only the ledger says.

// paymentID keeps whatever else lies in the directory from being looked for in the ledger.
var paymentID = pattern.Lazy(`^pay_[0-9a-f]{32}$`)

// note puts a payment into the outbox; twice is once.
func (h *Hooks) note(id string) error {
	if !paymentID().MatchString(id) {
		return errors.New("its id is none")
	}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(h.Dir, id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), ownfile.SyncDir(h.Dir))
}

// waiting are the payments in the outbox, oldest first, as their ids begin with the time.
func (h *Hooks) waiting() (ids []string, err error) {
	entries, err := os.ReadDir(h.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if paymentID().MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	return ids, err
}

// isWaiting reports whether a payment is in the outbox still: another process may have told it.
func (h *Hooks) isWaiting(id string) (bool, error) {
	_, err := os.Lstat(filepath.Join(h.Dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (h *Hooks) done(id string) error {
	err := os.Remove(filepath.Join(h.Dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
