package tools

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// noVault says that no vault is named on an EVM network.
func noVault(network string) *x402.Error {
	return x402.Errorf(x402.NoDelegation, "config.toml names no vault on %s", x402.Title(network)).
		WithHint("the owner makes one and names it under [networks.%q]", network).
		WithCommand(x402.Command("vault", "deploy", "--network", network), "You have no vault on "+
			x402.Title(network)+" from which I may spend: this makes one.")
}

// networkOfEVM is the network on which config.toml names a vault or an owner's account, else the first.
func (w *Wallet) networkOfEVM(networks []string, account string) string {
	for _, network := range networks {
		if strings.EqualFold(w.EVM.VaultOn(network), account) || w.isAllowance(network, account) {
			return network
		}
	}
	return networks[0]
}

// Vault reads a vault of the owner's: the one named, else the one of config.toml. Its error is an
// *x402.Error.
func (w *Wallet) Vault(ctx context.Context, network, address string) (onchain.Vault, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	if address == "" {
		address = w.EVM.VaultOn(network)
	}
	if address == "" {
		return onchain.Vault{}, noVault(network)
	}
	v, err := w.EVM.ReadVault(ctx, network, address)
	if err != nil {
		return v, withCode(x402.CheckFailed, "the vault could not be read", err)
	}
	return v, nil
}

func (w *Wallet) checkVault(ctx context.Context, network, address string) (DelegationOut, error) {
	v, err := w.Vault(ctx, network, address)
	if err != nil {
		return DelegationOut{}, err
	}
	largest, err := w.Store.RecordDelegation(ctx, network, v.Address, v.Available)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "what it lets be spent could not be noted", err)
	}
	out := DelegationOut{
		IsActive: v.Agent != "" && !v.Available.IsZero(), IsOurAgent: v.IsOurs, RemainingAmount: v.Available,
		OriginalAmount: largest, TokenMint: v.Asset, OwnerTokenAccount: v.Address, Balance: v.Balance,
		Network: network, Owner: v.Owner, PerPayment: &v.PerPayment, PerPeriod: &v.PerPeriod,
		PeriodSeconds: int64(v.Period / time.Second),
	}
	if v.Agent != "" {
		out.Delegate = &v.Agent
	}
	if !v.NextPeriod.IsZero() {
		out.MoreAt = x402.Stamp(v.NextPeriod)
	}
	out.Next = nextOfVault(v)
	return out, nil
}

func nextOfVault(v onchain.Vault) x402.Next {
	switch {
	case v.IsOurs && !v.Available.IsZero():
		return x402.Next{Do: x402.Done}
	case v.IsOurs && v.Balance.IsZero():
		return x402.Next{Do: x402.AskPerson, Why: "nothing lies in the vault",
			Command: x402.Command("vault", "deposit", "--network", v.Network),
			Say:     "Your vault is empty: this puts money into it."}
	case v.IsOurs && !v.NextPeriod.IsZero():
		return x402.Next{Do: x402.Wait, At: x402.Stamp(v.NextPeriod),
			Why: "what it lets this agent spend until then is spent"}
	}
	return x402.Next{Do: x402.AskPerson, Why: "the vault lets this agent spend nothing",
		Command: x402.Command("vault", "allow", "--network", v.Network),
		Say:     "Your vault lets me spend nothing; this allows me as much as you put there."}
}

// revokeVault prepares the owner's revoke().
func (w *Wallet) revokeVault(ctx context.Context, network, address string, frozen bool) (revokeOut, error) {
	v, err := w.Vault(ctx, network, address)
	if err != nil {
		return revokeOut{}, err
	}
	t, err := w.EVM.RevokeVault(ctx, v)
	if err != nil {
		return revokeOut{}, withCode(x402.CheckFailed, "the transaction could not be made", err).
			WithDetail("frozen", frozen)
	}
	unsigned, err := w.EVM.Unsigned(t)
	if err != nil {
		return revokeOut{}, withCode(x402.CheckFailed, "the transaction could not be made", err)
	}
	command := x402.Command("vault", "revoke", "--network", network, "--vault", v.Address)
	return revokeOut{Network: network, TokenAccount: v.Address, Owner: v.Owner,
		Transaction: "0x" + hex.EncodeToString(unsigned), Frozen: frozen, Command: command,
		Next: x402.Next{Do: x402.AskPerson, Command: command,
			Say: "This lets nobody spend from your vault any more, also with what is signed already; only " +
				"you can sign it."}}, nil
}
