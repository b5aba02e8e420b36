package sqldb

import (
	"context"
	"time"

	"x402-wallet/x402"
)

// lockWait bounds how long a caller waits for the transaction of another process. Transactions take
// milliseconds and never span the network, so a longer wait means that something is wrong.
const lockWait = 5 * time.Second

// retryPause is the time between two attempts at a transaction.
const retryPause = 5 * time.Millisecond

// Wait is how long a caller waits for others: until its context ends, and never past a time. Every wait for
// the database goes by one, so that a call's deadline holds whoever holds the database.
type Wait struct {
	ctx   context.Context
	until time.Time
}

// waitFor is the usual wait: lockWait, from now on.
func waitFor(ctx context.Context) Wait { return Wait{ctx: ctx, until: time.Now().Add(lockWait)} }

// over returns why not to wait any longer, or nil if there is time left.
func (w Wait) over(doing string) error {
	switch {
	case w.ctx.Err() != nil:
		return isHeld(x402.Errorf(x402.LedgerUnavailable, "%s: %w while another process held the ledger",
			doing, w.ctx.Err()))
	case time.Now().After(w.until):
		return HeldTooLong(doing)
	}
	return nil
}

func HeldTooLong(doing string) error {
	return isHeld(x402.Errorf(x402.LedgerUnavailable, "%s: another process held the ledger for more than %s",
		doing, lockWait))
}

// OutOfTime is the error of a caller whose time was over, or who left, before its turn. err is its context's.
func OutOfTime(doing string, err error) error {
	e := x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
	e.FixedBy = x402.ByTime
	return e.WithHint("nothing was written; make the same call again, with more time")
}

// isHeld says that the ledger will be free again, without a person.
func isHeld(e *x402.Error) error {
	e.FixedBy = x402.ByTime
	return e.WithHint(hintHeld)
}

const hintHeld = "make the same call again; a process of this wallet that was suspended while it wrote, or " +
	"another program that has the ledger open, keeps the others out until it goes on or ends"
