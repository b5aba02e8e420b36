package tools

import (
	"context"
	"encoding/hex"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// ownerOn is the owner's account that config.toml names on a network for taking a float from; "": none.
func (w *Wallet) ownerOn(network string) string {
	if rule := w.EVM.AllowanceOn(network); rule != nil {
		return rule.Owner
	}
	return ""
}

func (w *Wallet) isAllowance(network, account string) bool {
	owner := w.ownerOn(network)
	return owner != "" && strings.EqualFold(owner, account)
}

// Allowance reads what an owner lets the agent take of an asset, the network's dollars where symbol is "".
// Its error is an *x402.Error.
func (w *Wallet) Allowance(ctx context.Context, network, owner, symbol string) (a x402.OwnerAllowance,
	asset x402.AssetInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	asset, known := w.Engine.Assets.Named(network, symbol)
	if !known {
		return a, asset, x402.Errorf(x402.UntrustedAsset, "%s is not an asset on %s", x402.Quote(symbol),
			x402.Title(network)).WithHint("the owner adds it to config.toml under [[assets]]")
	}
	a, err = w.EVM.ReadAllowance(ctx, network, owner, asset)
	if err != nil {
		return a, asset, withCode(x402.CheckFailed, "the allowance could not be read", err)
	}
	return a, asset, nil
}

// checkAllowance is CheckDelegation of an owner's account.
func (w *Wallet) checkAllowance(ctx context.Context, network, owner string) (DelegationOut, error) {
	a, _, err := w.Allowance(ctx, network, owner, "")
	if err != nil {
		return DelegationOut{}, err
	}
	largest, err := w.Store.RecordDelegation(ctx, network, a.Owner, a.Approved)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "what may be taken could not be noted", err)
	}
	out := DelegationOut{
		IsActive: !a.Approved.IsZero(), IsOurAgent: !a.Approved.IsZero(), RemainingAmount: a.Approved,
		OriginalAmount: largest, TokenMint: a.Asset, OwnerTokenAccount: a.Owner, Balance: a.Balance,
		Network: network, Float: &a.Float, Gas: &a.Gas,
	}
	if out.IsActive {
		out.Delegate = &a.Agent
	}
	out.Next = nextOfAllowance(a)
	return out, nil
}

func nextOfAllowance(a x402.OwnerAllowance) x402.Next {
	switch {
	case a.Approved.IsZero():
		return x402.Next{Do: x402.AskPerson, Why: "the account lets this agent take nothing",
			Command: approveCommand(a),
			Say:     "Your account lets me take nothing; this allows me up to the amount that you put there."}
	case a.Gas.IsZero():
		return x402.Next{Do: x402.AskPerson, Why: "the agent has nothing to pay gas with",
			Command: x402.Command("address", "--qr"),
			Say: "I have nothing of " + x402.Title(a.Network) + "'s coin to pay gas with: " +
				"please send a little of it to " + a.Agent + "."}
	}
	return x402.Next{Do: x402.Done}
}

func approveCommand(a x402.OwnerAllowance) string {
	return x402.Command("delegation", "approve", "--owner-keypair", "FILE", "--network", a.Network,
		"--token-account", a.Owner, "--amount", "25")
}

// revokeAllowance prepares the owner's approve of 0.
func (w *Wallet) revokeAllowance(ctx context.Context, network, owner string, frozen bool) (revokeOut, error) {
	a, _, err := w.Allowance(ctx, network, owner, "")
	var t onchain.OwnerTransaction
	if err == nil {
		t, err = w.EVM.ApproveAllowance(ctx, a, money.Amount{})
	}
	var unsigned []byte
	if err == nil {
		unsigned, err = w.EVM.Unsigned(t)
	}
	if err != nil {
		return revokeOut{}, withCode(x402.CheckFailed, "the transaction could not be made", err).
			WithDetail("frozen", frozen)
	}
	command := x402.Command("delegation", "revoke", "--owner-keypair", "FILE", "--network", network,
		"--token-account", a.Owner)
	return revokeOut{Network: network, TokenAccount: a.Owner, Owner: a.Owner,
		Transaction: "0x" + hex.EncodeToString(unsigned), Frozen: frozen, Command: command,
		Next: x402.Next{Do: x402.AskPerson, Command: command,
			Say: "This lets me take nothing more from your account; only you can sign it. I keep what " +
				"I took before, " + a.Float.String() + " atomic units."}}, nil
}
