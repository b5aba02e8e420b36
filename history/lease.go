package history

import (
	"context"
	"errors"
	"fmt"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// ErrNotLeaseOwner says that another process works on the payment: it was taken over from this one,
// which may neither send it nor release its money any more.
var ErrNotLeaseOwner = errors.New("another process works on this payment")

// leasedBy reads a payment without its evidence, and refuses a process that does not own its lease.
func (t *tx) leasedBy(id, process string) (Payment, error) {
	p, err := t.brief(id)
	if err == nil && (p.LeaseOwner != process || process == "") {
		err = fmt.Errorf("%w: %s", ErrNotLeaseOwner, id)
	}
	return p, sqldb.Otherwise(err, errNoPayment)
}

// AcquireLease makes this process the one that works on an unfinished payment, and whose client
// waits for it, if from (the lease's owner as it was read) still owns the lease. It reports whether
// that is so; of two that try at once, one gets it.
func (s *Store) AcquireLease(ctx context.Context, id, from string) (bool, error) {
	owner, err := s.process.Join()
	if err != nil {
		return false, err
	}
	var n int64
	err = s.tx(ctx, func(t *tx) error {
		n, err = t.Exec(`UPDATE payments SET lease_owner = ?, waiter = ? WHERE id = ? AND lease_owner = ?`,
			owner, owner, id, from)
		return err
	})
	return n == 1, err
}

// AttachIdempotencyKey gives a payment that is not failed and has no idempotency key one, and
// reports whether it carries that key now: a call with a key that takes up a payment made without
// one makes it the key's purchase. A key is its agent's own; *AlreadyPaying says that it has another already.
func (s *Store) AttachIdempotencyKey(ctx context.Context, id, key string) (named bool, err error) {
	err = s.tx(ctx, func(t *tx) error {
		p, err := t.brief(id)
		if err != nil {
			return err
		}
		owner, err := t.purchase(Payment{IdempotencyKey: key, Agent: p.Agent}, false)
		if err != nil {
			return err
		}
		if owner != nil {
			named = owner.ID == id
			if named {
				return nil
			}
			return &AlreadyPaying{Payment: *owner}
		}
		n, err := t.Exec(`UPDATE payments SET idempotency_key = ?
			WHERE id = ? AND idempotency_key IS NULL AND state <> 'failed'`, key, id)
		named = n == 1
		if err != nil || !named {
			return err
		}
		return t.audit(p.Number, audit.KeyedEvent, map[string]string{"key": key})
	})
	return named, err
}

// ReleaseLease says that this process no longer works on a payment. Where another one does, it stays so: this
// one was taken for dead meanwhile.
func (s *Store) ReleaseLease(ctx context.Context, id string) error {
	return s.update(ctx, `UPDATE payments SET lease_owner = '' WHERE id = ? AND lease_owner = ?`, id, s.Self())
}

// ClearWaiter says that nobody waits for the answer any more: the client cancelled or left, or was
// told that the outcome is open. The next identical call takes the payment up instead of paying again.
func (s *Store) ClearWaiter(ctx context.Context, id string) error {
	return s.update(ctx, `UPDATE payments SET waiter = '' WHERE id = ?`, id)
}

// Deliver says that the client has the answer.
func (s *Store) Deliver(ctx context.Context, id string) error {
	return s.tx(ctx, func(t *tx) error { return t.deliver(id) })
}

func (t *tx) deliver(id string) error {
	var number int64
	var before bool
	err := t.Row(`SELECT seq, delivered FROM payments WHERE id = ?`, id).Scan(&number, &before)
	if err != nil {
		return sqldb.Otherwise(err, nil)
	}
	_, err = t.Exec(`UPDATE payments SET delivered = 1, waiter = '' WHERE seq = ? AND (delivered = 0 OR waiter <> '')`,
		number)
	if err != nil || before {
		return err
	}
	if err := t.contents.NobodyWaits(t.Tx, number); err != nil {
		return err
	}
	return t.audit(number, audit.DeliveredEvent, map[string]string{})
}

// update changes who works on a payment or waits for it. It need not outlive a power cut, after
// which both are gone anyway.
func (s *Store) update(ctx context.Context, query string, args ...any) error {
	return s.tx(ctx, func(t *tx) error {
		_, err := t.Exec(query, args...)
		return err
	})
}

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
