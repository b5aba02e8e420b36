package verify

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/x402"
)

// Guard is seal.Guard.
type Guard interface {
	// CheckLedger refuses a ledger that is behind its checkpoint, which the keyholder has.
	CheckLedger(ctx context.Context) (history.Keyholder, error)
	// GaveApproval reports whether the owner gave an approval.
	GaveApproval(ctx context.Context, a history.Approval) (bool, error)
	// Authentic refuses sealed rules that this wallet did not seal.
	Authentic(ctx context.Context) error
}

// Owned is Sealed with what the owner sealed: the checkpoint is on the chain, nothing that stands frozen was
// taken out, and every lift, every approval that the chain calls the owner's and the newest rules are theirs.
func Owned(ctx context.Context, s *history.Store, g Guard) error {
	sealed, err := s.Rules(ctx)
	if err != nil {
		return err
	}
	k, err := g.CheckLedger(ctx)
	if err != nil {
		return err
	}
	if _, err := Sealed(ctx, s, k); err != nil {
		return err
	}
	given, err := asking.Given(ctx, s)
	if err != nil {
		return err
	}
	for _, a := range given {
		own, err := g.GaveApproval(ctx, a)
		if err != nil {
			return err
		}
		if !own {
			return x402.Errorf(x402.LedgerCorrupt,
				"the approval %s, which the ledger calls the owner's, was not given by the owner", a.ID)
		}
	}
	if sealed.Version == 0 { // none were ever sealed
		return nil
	}
	return g.Authentic(ctx)
}
