package pay

import (
	"context"
	"log/slog"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// delegationWait is how long a session's first payment waits for what may have been delegated, where the
// owner named no account that delegates.
const delegationWait = 3 * time.Second

// Delegation reads what a token account on Solana has delegated to the wallet's own account. That is the
// limit of a budget session where the owner set none (SPEC section 5).
type Delegation struct {
	Networks      []string          // of the owner's rules, in their order
	TokenAccounts map[string]string // by network: those that the owner named
	Assets        *x402.Registry
	Funds         func(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
	Log           *slog.Logger
}

// Limit returns what is delegated on the first network that has a delegation, in dollars, or nil if there is
// none. A node that does not answer is an error only where the owner named an account.
func (d Delegation) Limit(ctx context.Context) (*money.Dollars, error) {
	for _, network := range d.Networks {
		asset, known := d.Assets.Named(network, "")
		if !known || !x402.IsSolana(network) {
			continue
		}
		funds, err := d.read(ctx, network, asset)
		if err != nil {
			return nil, err
		}
		if funds.Delegated != nil {
			worth := asset.Dollars(*funds.Delegated)
			return &worth, nil
		}
	}
	return nil, nil
}

func (d Delegation) read(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	isNamed := d.TokenAccounts[network] != ""
	if !isNamed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, delegationWait)
		defer cancel()
	}
	funds, err := d.Funds(ctx, network, asset)
	switch {
	case x402.HasCode(err, x402.NoDelegation), x402.HasCode(err, x402.DelegateMismatch):
		return x402.Funds{}, nil
	case err != nil && !isNamed:
		d.Log.Warn("a session begins, and whether anything is delegated is not known", "network", network,
			"err", err)
		return x402.Funds{}, nil
	case err != nil:
		return funds, x402.AsError(err).WithHint("a budget session begins, and what was delegated is its "+
			"cap: try again when the node of %s answers", x402.Title(network))
	}
	return funds, nil
}

// SessionCap is the limit of a session that begins now, where the owner set none, or nil for no limit. What is
// delegated to a named account limits no session, because all accounts pay in the same one.
func (e *Engine) SessionCap(ctx context.Context) (*money.Dollars, error) {
	if e.Rules.Session != nil || e.Rules.Account != "" {
		return nil, nil
	}
	return e.delegation().Limit(ctx)
}

func (e *Engine) delegation() Delegation {
	return Delegation{Networks: e.Policy.Networks, TokenAccounts: e.Policy.TokenAccounts, Assets: e.Assets,
		Log: e.Log,
		Funds: func(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
			scheme, ok := e.scheme(e.simplest(), network)
			if !ok {
				return x402.Funds{}, nil
			}
			return scheme.Funds(ctx, network, asset)
		}}
}
