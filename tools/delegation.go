package tools

import (
	"context"
	"slices"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// DelegationIn is what x402_check_delegation takes.
type DelegationIn struct {
	TokenAccount string `json:"tokenAccount,omitempty" jsonschema:"the owner's SPL token account; default: the configured one, else the one that delegates to this agent"`
	Network      string `json:"network,omitempty" jsonschema:"Solana network; default: the preferred one"`
}

// DelegationOut is its answer. Amounts are atomic units.
type DelegationOut struct {
	IsActive          bool         `json:"isActive"`
	Delegate          *string      `json:"delegate"`
	IsOurAgent        bool         `json:"isOurAgent"`
	RemainingAmount   money.Amount `json:"remainingAmount"`
	OriginalAmount    money.Amount `json:"originalAmount"` // the largest ever seen
	TokenMint         string       `json:"tokenMint"`
	OwnerTokenAccount string       `json:"ownerTokenAccount"`
	Frozen            bool         `json:"frozen"`
	Balance           money.Amount `json:"balance"`
	Network           string       `json:"network"`
}

const delegationDescription = `What an owner's SPL token account lets this agent spend: whether the delegation is active, ours, frozen, and how much of it is left.`

// CheckDelegation reads a delegation from the chain. Its error is an *x402.Error.
func (w *Wallet) CheckDelegation(ctx context.Context, in DelegationIn) (DelegationOut, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	network, account, err := w.delegationAsked(ctx, in)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "the delegation could not be looked up", err)
	}
	d, err := w.Delegations.Delegation(ctx, network, account)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "the delegation could not be read", err)
	}
	largest, err := w.Store.RecordDelegation(ctx, network, account, d.Remaining)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "the delegation could not be noted", err)
	}
	out := DelegationOut{
		IsActive: d.Delegate != "" && !d.Remaining.IsZero() && !d.Frozen, IsOurAgent: d.IsOurs,
		RemainingAmount: d.Remaining, OriginalAmount: largest,
		TokenMint: d.Mint, OwnerTokenAccount: d.Account, Frozen: d.Frozen, Balance: d.Balance,
		Network: network,
	}
	if d.Delegate != "" {
		out.Delegate = &d.Delegate
	}
	return out, nil
}

// delegationAsked is the account that is meant: the one asked for, else the configured one, else
// the one that delegates to this agent.
func (w *Wallet) delegationAsked(ctx context.Context, in DelegationIn) (network, account string, err error) {
	networks := slices.DeleteFunc(slices.Clone(w.Networks), func(n string) bool { return !x402.IsSolana(n) })
	if in.Network != "" {
		wanted, _ := x402.Network(in.Network)
		if !slices.Contains(networks, wanted) {
			return "", "", x402.Errorf(x402.InvalidArgument,
				"the network %q is not a Solana network that is configured", in.Network).
				WithHint("configured are: %s", strings.Join(networks, ", "))
		}
		networks = []string{wanted}
	}
	if len(networks) == 0 {
		return "", "", x402.Errorf(x402.NoDelegation,
			"no Solana network is configured; only Solana has delegations").
			WithHint("the owner adds a Solana network to config.toml")
	}
	if in.TokenAccount != "" {
		return w.networkOf(ctx, networks, in.TokenAccount), in.TokenAccount, nil
	}
	for _, network := range networks {
		if account := w.TokenAccounts[network]; account != "" {
			return network, account, nil
		}
	}
	for _, n := range networks {
		found, acc, failed := w.delegatingAccount(ctx, n)
		if failed == nil {
			return found, acc, nil
		}
		if err == nil { // of the preferred one
			err = failed
		}
	}
	return "", "", err
}

// networkOf is the network that has a token account, as far as their nodes can tell; else the
// preferred one.
func (w *Wallet) networkOf(ctx context.Context, networks []string, account string) string {
	if len(networks) > 1 {
		for _, network := range networks {
			if _, err := w.Delegations.Delegation(ctx, network, account); err == nil {
				return network
			}
		}
	}
	return networks[0]
}

func (w *Wallet) delegatingAccount(ctx context.Context, network string) (string, string, error) {
	nobody := x402.Errorf(x402.NoDelegation, "no token account on %s delegates to this wallet", network).
		WithHint("the owner runs: x402-wallet delegation approve; or pass tokenAccount to look at a " +
			"certain one")
	asset, known := w.Engine.Assets.Default(network)
	chain, reads := w.Chains["solana"]
	if !known || !reads {
		return "", "", nobody
	}
	funds, err := chain.Funds(ctx, network, asset)
	if err != nil {
		e := x402.AsError(err)
		if account, named := e.Details["tokenAccount"].(string); named && e.Details["reason"] == "frozen" {
			// nothing to spend, but something to tell
			return network, account, nil
		}
		return "", "", err
	}
	if funds.Delegated == nil {
		return "", "", nobody
	}
	return network, funds.Source, nil
}
