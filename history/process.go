package history

import (
	"context"
	"errors"

	"x402-wallet/history/sqldb"
)

// Process is a Store's process among those that use the ledger (package processes). A payment's lease is a
// process's: so any other one can distinguish a payment that somebody works on from one whose process is
// gone.
type Process interface {
	// Join returns the process's id, and makes it known to the others the first time.
	Join() (id string, err error)
	// Self is the id, or empty before Join.
	Self() string
	// Alive reports whether a process still runs. One of unknown state counts as ended where its payments can
	// be taken up: then the same signed bytes go out twice at the worst. Were it taken for alive, the same
	// call would be another purchase and pay again.
	Alive(id string) bool
	// Leave ends it. It is called once.
	Leave()
}

// Alive reports whether a lease owner or waiter still runs.
func (s *Store) Alive(id string) bool { return s.process.Alive(id) }

// Self is this process's id, "" before its first payment.
func (s *Store) Self() string { return s.process.Self() }

// LedgerID is the random name the ledger was created with. It never changes, and is read once.
func (s *Store) LedgerID(ctx context.Context) (string, error) {
	if known := s.ledgerID.Load(); known != nil {
		return *known, nil
	}
	id, err := readOnce(ctx, s, func(t *tx) (string, error) {
		id, err := sqldb.ScanText(t.Row(`SELECT value FROM meta WHERE key = 'ledger_id'`))
		return id, sqldb.Otherwise(err, sqldb.Damaged("read the ledger's id", errors.New("it has none")))
	})
	if err == nil {
		s.ledgerID.Store(&id)
	}
	return id, err
}
