package pay

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// delegationWait is how long a session's first payment waits for what may have been delegated, where the
// owner named no account that delegates.
const delegationWait = 3 * time.Second

// Delegation reads what is delegated to the wallet's own account: that is the limit of a budget session where
// the owner set none. Who signs reads it for itself.
type Delegation struct {
	Networks []string // of the owner's rules, in their order
	// IsNamed reports whether the owner named an account that delegates on a network.
	IsNamed func(network string) bool
	Assets  *x402.Registry
	Funds   func(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
	Log     *slog.Logger
}

// Limit returns what is delegated, in dollars, or nil if nothing is: on the network of the session's first
// payment, of its asset, or else on the first network that has a delegation. An empty network is none. Where
// the owner named accounts that delegate, only theirs count; else any on Solana. A node that does not
// answer is an error only where the owner named an account.
func (d Delegation) Limit(ctx context.Context, network, asset string) (*money.Dollars, error) {
	counts := d.IsNamed
	if !slices.ContainsFunc(d.Networks, d.IsNamed) {
		counts = x402.IsSolana
	}
	paid, known := d.Assets.Asset(network, asset)
	if known && counts(network) {
		limit, err := d.limit(ctx, paid)
		if limit != nil || err != nil {
			return limit, err
		}
	}
	for _, other := range d.Networks {
		dollars, known := d.Assets.Named(other, "")
		if !known || !counts(other) || dollars.Key() == paid.Key() {
			continue
		}
		limit, err := d.limit(ctx, dollars)
		if limit != nil || err != nil {
			return limit, err
		}
	}
	return nil, nil
}

// OfPayment is Limit for a session that begins with a payment.
func (d Delegation) OfPayment(ctx context.Context, p history.Payment) (*money.Dollars, error) {
	return d.Limit(ctx, p.Network, p.Asset)
}

func (d Delegation) limit(ctx context.Context, asset x402.AssetInfo) (*money.Dollars, error) {
	if !d.IsNamed(asset.Network) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, delegationWait)
		defer cancel()
	}
	funds, err := d.Funds(ctx, asset.Network, asset)
	switch {
	case x402.HasCode(err, x402.NoDelegation), x402.HasCode(err, x402.DelegateMismatch):
		return nil, nil
	case err != nil && !d.IsNamed(asset.Network):
		d.Log.Warn("a session begins, and whether anything is delegated is not known", "network",
			asset.Network, "err", err)
		return nil, nil
	case err != nil:
		return nil, x402.AsError(err).WithHint("a budget session begins, and what was delegated is its cap: "+
			"try again when the node of %s answers", x402.Title(asset.Network))
	case funds.Delegated == nil:
		return nil, nil
	}
	worth := asset.Dollars(*funds.Delegated)
	return &worth, nil
}

// SessionCap is the limit of a session that begins now, where the owner set none, or nil for no limit.
func (e *Engine) SessionCap(ctx context.Context) (*money.Dollars, error) {
	if e.Rules.Session != nil || e.Delegated == nil {
		return nil, nil
	}
	return e.Delegated(ctx, "", "")
}
