package pay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/history"
)

// patience is how long an answer to a payment is waited for: as long as the offer says that it may take
// (maxTimeoutSeconds), and at least as long as a call may take before it is paid; but no longer than
// the owner's max_wait.
func (p Policy) patience(offered time.Duration) time.Duration {
	return min(max(offered, p.Deadline), cmp.Or(p.MaxWait, p.Deadline))
}

// timeOffered is how long the offer that was paid says that an answer may take; 0 if it does not say.
func timeOffered(p history.Payment) time.Duration {
	var offer struct {
		Seconds int64 `json:"maxTimeoutSeconds"`
	}
	const most = int64(24 * time.Hour / time.Second)
	if json.Unmarshal(p.Requirement, &offer) != nil || offer.Seconds < 0 {
		return 0
	}
	return time.Duration(min(offer.Seconds, most)) * time.Second
}

// Patience is how long the answer to a payment is waited for.
func (e *Engine) Patience(p history.Payment) time.Duration { return e.Policy.patience(timeOffered(p)) }

// gaveUp says that the wallet stopped waiting for an answer, and which of the owner's keys is how long it
// waits; "" if it was not the wallet that ended the exchange.
func (e *Engine) gaveUp(ctx context.Context, p history.Payment) string {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ""
	}
	offered := timeOffered(p)
	key, limit := "policy.max_wait", cmp.Or(e.Policy.MaxWait, e.Policy.Deadline)
	if max(offered, e.Policy.Deadline) < limit {
		key, limit = "policy.deadline", e.Policy.Deadline
	}
	words := fmt.Sprintf("the wallet stopped waiting for the seller's answer after %s (%s is %s",
		e.Patience(p), key, limit)
	if offered > 0 {
		words += fmt.Sprintf("; the offer's maxTimeoutSeconds is %d", int64(offered/time.Second))
	}
	return words + ")"
}
