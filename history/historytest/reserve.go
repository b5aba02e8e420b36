// Package historytest is for tests of packages that use a ledger.
package historytest

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"

	"x402-wallet/budget"
	"x402-wallet/history"
)

// Reserve holds money without asking any rules, and uses up a person's approval of a quote where
// one is named and there is one. What others do meanwhile does not matter to it.
func Reserve(ctx context.Context, s *history.Store, h history.Hold,
	quotes ...[sha256.Size]byte) (history.Payment, error) {
	for {
		facts, err := s.Facts(ctx, history.Question{Quotes: quotes})
		if err != nil {
			return history.Payment{}, err
		}
		h.Decision = budget.Decision{Session: facts.Session.ID, Caps: []budget.Cap{{Limit: math.MaxInt64}}}
		covers := func(a history.Approval) bool { return a.Covers(h.Payment) }
		if len(facts.Approvals) > 0 {
			h.Approval = &facts.Approvals[max(0, slices.IndexFunc(facts.Approvals, covers))]
		}
		p, err := s.Reserve(ctx, h)
		if !errors.Is(err, history.ErrMoved) {
			return p, err
		}
	}
}
