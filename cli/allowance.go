package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"x402-wallet/tools"
	"x402-wallet/wallet/imported"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/remedy"
)

// allowanceNetwork is the EVM network of an owner's account, if one is meant: by the network's name, by the
// account's form, or because there is nothing on Solana that could be.
func allowanceNetwork(w *tools.Wallet, f delegationFlags) (network string, isMeant bool) {
	named := configured(w, "eip155", f.network)
	noSolana := !slices.ContainsFunc(w.Networks, x402.IsSolana)
	isMeant = len(named) > 0 && (f.network != "" || strings.HasPrefix(f.account, "0x") || noSolana)
	if !isMeant {
		return "", false
	}
	with := slices.IndexFunc(named, func(n string) bool { return w.EVM.AllowanceOn(n) != nil })
	return named[max(with, 0)], true
}

// changeAllowance has the owner approve what the agent may take from their account, or nothing any more; or
// prints what is to be signed.
func changeAllowance(ctx context.Context, ui *ui, w *tools.Wallet, f delegationFlags, network string,
	revoke bool) error {
	owner := f.account
	if rule := w.EVM.AllowanceOn(network); rule != nil {
		owner = cmp.Or(owner, rule.Owner)
	}
	var key imported.Key
	if f.keypair != "" {
		var err error
		if key, err = ownersKey(ctx, ui, f.keypair); err != nil {
			return err
		}
		defer key.Wipe()
		owner = cmp.Or(owner, key.Address)
		if !strings.EqualFold(owner, key.Address) {
			return x402.Errorf(x402.InvalidArgument, "the account is %s, but the key in %s is that of %s",
				owner, f.keypair, key.Address).
				WithHint("name your own account by --token-account, or its key by --owner-keypair")
		}
	}
	if owner == "" {
		return usagef("without the owner's key, --token-account must name the owner's address")
	}
	defer ui.waiting("waiting for the node")()
	a, asset, err := w.Allowance(ctx, network, owner, f.symbol)
	if err != nil {
		return err
	}
	var amount money.Amount
	if !revoke {
		if amount, err = tokens(f.amount, asset.Decimals); err != nil {
			return err
		}
	}
	t, err := w.EVM.ApproveAllowance(ctx, a, amount)
	if err != nil {
		return err
	}
	out := changeOut{Network: network, TokenAccount: a.Owner, Owner: a.Owner}
	if !revoke {
		out.Delegate, out.Amount = a.Agent, amount.String()
	}
	if w.EVM.AllowanceOn(network) == nil && !revoke {
		out.Config = remedy.AllowanceLines(network, a.Owner)
	}
	if f.keypair == "" {
		out.Transaction, err = unsigned(w, t)
	} else {
		out.Hash, err = signOwners(ctx, w, key, t)
	}
	if err != nil {
		return err
	}
	if out.Hash != "" {
		ui.noteChange(ctx, w, out, asset.Address)
	}
	return ui.answer(out, func() { ui.allowance(out, amount.Units(asset.Decimals)+" "+asset.Symbol) })
}

func signOwners(ctx context.Context, w *tools.Wallet, key imported.Key, t onchain.OwnerTransaction) (
	hash string, err error) {
	signature, err := key.SignVaultTransaction(imported.VaultTransaction{ChainID: t.ChainID, Nonce: t.Nonce,
		Gas: t.Gas, Tip: t.Tip.Bytes32(), MaxFee: t.MaxFee.Bytes32(), To: t.To, Data: t.Data})
	if err != nil {
		return "", err
	}
	return w.EVM.SendOwner(ctx, t, signature)
}

// allowance shows what became of an approval, or what to sign.
func (u *ui) allowance(out changeOut, amount string) {
	switch {
	case out.Transaction != "":
		u.note("%s must sign this and pays its gas:", out.Owner)
		u.say("%s", out.Transaction)
	case out.Delegate == "":
		u.say("revoked: the agent takes nothing more from %s; transaction %s", out.Owner, out.Hash)
	default:
		u.say("approved: the agent may take up to %s from %s; transaction %s", amount, out.Owner, out.Hash)
	}
	if out.Config != "" {
		u.note("\nPut this into config.toml and run %s:\n\n%s", remedy.SealCommand, out.Config)
	}
}
