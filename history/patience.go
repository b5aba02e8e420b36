package history

import (
	"context"
	"time"

	"x402-wallet/x402"
)

// patience is how long somebody waits for other processes: until the caller has no time left or
// leaves, and never past until. Every wait on the ledger goes by one, so that a call's deadline holds
// whoever holds the ledger.
type patience struct {
	ctx   context.Context
	until time.Time
}

// patient is the usual one: lockWait, from now on.
func patient(ctx context.Context) patience {
	return patience{ctx: ctx, until: time.Now().Add(lockWait)}
}

// over is why not to wait any longer; nil: look again.
func (p patience) over(doing string) error {
	switch {
	case p.ctx.Err() != nil:
		return isHeld(x402.Errorf(x402.LedgerUnavailable, "%s: %w while another process held the ledger",
			doing, p.ctx.Err()))
	case time.Now().After(p.until):
		return heldTooLong(doing)
	}
	return nil
}

func heldTooLong(doing string) error {
	return isHeld(x402.Errorf(x402.LedgerUnavailable, "%s: another process held the ledger for more than %s",
		doing, lockWait))
}

// outOfTime is the error of a caller whose time was over, or who left, before its turn; err is its context's.
func outOfTime(doing string, err error) error {
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
