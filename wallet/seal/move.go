package seal

import (
	"context"

	"x402-wallet/budget"
	"x402-wallet/history"
)

// CheckpointMove records how far a ledger had come when it was moved or marked for that, and nothing older
// stays beside. to is the ledger that it has moved to: then no process of this home takes it for good any
// more, whatever was put into its place; "": it may stay.
func (g *Guard) CheckpointMove(ctx context.Context, to string) error {
	sealed, err := g.Store.Rules(ctx)
	if err != nil {
		return err
	}
	release, err := g.checkpoints().hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	g.moved = to
	return g.write(ctx, sealed.Version, g.replace)
}

// NewKeyholder is the keyholder of a ledger that is new, and has no checkpoint yet.
func (g *Guard) NewKeyholder(ctx context.Context) (history.Keyholder, error) { return g.keyholder(ctx) }

// Seals make the owner's word in this guard's ledger again of what comes from another one, where it was
// checked. In a fleet they take the owner's key.
func (g *Guard) Seals(ctx context.Context) (s history.Seals, err error) {
	if g.Fleet != nil {
		err = g.needOwner()
		return history.Seals{Approval: g.signApproval, Lift: g.signLift, Session: g.signSession}, err
	}
	seal, err := g.sealer(ctx)
	return history.Seals{
		Approval: func(a history.Approval) ([]byte, error) { return seal(purposeApproval, approvalData(a)) },
		Lift:     func(l history.Lift) ([]byte, error) { return seal(purposeLift, liftData(l)) },
		Session:  func(s budget.Session) ([]byte, error) { return seal(purposeSession, sessionData(s)) },
	}, err
}
