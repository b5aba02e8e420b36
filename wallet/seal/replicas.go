package seal

import (
	"context"
	"errors"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// ErrSuperseded says that the rules in force were sealed once, and that the owner sealed others since, at
// another replica.
var ErrSuperseded = errors.New("the owner sealed other rules at another replica")

// isOlder reports whether the rules in force are an older version of the sealed ones. In a home with a ledger
// of its own, the owner put an older text back.
func (g *Guard) isOlder(ctx context.Context) (bool, error) {
	if !g.Store.Shared() {
		return false, nil
	}
	older, err := g.Store.SealedAs(ctx, g.Rules.Text())
	return older.Version > 0, err
}

func superseded() error {
	e := x402.Errorf(x402.PolicyUnsealed, "%w, which hold here once this wallet's key has checked their seal",
		ErrSuperseded).WithHint("make the same call again; if the wallet is locked, the owner runs " +
		"x402-wallet unlock first")
	e.FixedBy = x402.ByTime
	return e
}

// takeOver puts rules, whose seal was checked, into this home's config.toml: they name programs that run
// before the next payment. If the ledger only claims that the rules here were sealed once, they are the
// owner's newest edit, and stay.
func (g *Guard) takeOver(ctx context.Context, sealed history.SealedRules) error {
	older, err := g.Store.SealedAs(ctx, g.Rules.Text())
	if err == nil {
		err = g.authentic(ctx, older)
	}
	if err != nil {
		return err
	}
	if err := g.Rules.Replace(g.Home, sealed.Config); err != nil {
		return x402.Errorf(x402.SetupFailed, "take over the rules of another replica: %w", err)
	}
	return superseded()
}
