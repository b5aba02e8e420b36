package svm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Funds reads what the chain lets the agent spend of an asset, at the commitment "confirmed". The
// source is
//
//  1. the token account that the config names for the network. It has to be right in every respect:
//     another one in its place would be a surprise. Errors: NO_DELEGATION, DELEGATE_MISMATCH.
//  2. else the account of the mint that is delegated to the agent and lets the most be spent, of
//     equals the lowest address;
//  3. else the agent's own associated token account, with a balance of 0 while it does not exist.
//
// Anybody can delegate to the agent. A stranger's account with nothing to spend therefore does not
// hide the agent's own money, and who wants to be sure whose money is spent names the account in
// the config. Delegated is nil for an account that the agent owns. Other errors: RPC_ERROR,
// CHECK_FAILED, WALLET_NOT_FOUND.
func (e *Exact) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	readAt := e.options.Now()
	self, err := e.self()
	if err != nil {
		return x402.Funds{}, err
	}
	mint, err := parseKey(asset.Address)
	if err != nil || asset.Network != network {
		return x402.Funds{}, invalid("the registry's asset is none of the network").WithDetail("asset",
			x402.Brief(asset.Address))
	}
	n, err := e.node(ctx, network)
	if err != nil {
		return x402.Funds{}, err
	}
	s := sources{node: n, agent: self, mint: mint, program: programOf(asset.Token2022)}
	var from tokenAccount
	if named := e.options.TokenAccounts[network]; named != "" {
		from, err = s.named(ctx, named)
	} else {
		from, err = s.found(ctx)
	}
	if err != nil {
		return x402.Funds{}, err
	}
	f := x402.Funds{Source: from.address.String(), Balance: money.NewAmount(from.amount),
		Free: money.NewAmount(from.spendable(self)), ReadAt: readAt}
	if from.delegatesTo(self) {
		delegated := money.NewAmount(from.delegated)
		f.Delegated = &delegated
	}
	return f, nil
}

// sources looks for the token account to spend from.
type sources struct {
	node                 *node
	agent, mint, program solana.PublicKey
}

// named is the account that the config names.
func (s sources) named(ctx context.Context, text string) (tokenAccount, error) {
	address, err := parseKey(text)
	if err != nil {
		return tokenAccount{}, x402.Errorf(x402.DelegateMismatch, "token_account in config.toml is %w",
			err).WithDetail("reason", "address").
			WithHint("the person corrects token_account in config.toml")
	}
	list, err := s.node.accounts(ctx, address)
	if err != nil {
		return tokenAccount{}, err
	}
	if list[0] == nil {
		return tokenAccount{}, noDelegation(address, "missing",
			"the token account %s, which config.toml names, does not exist", address)
	}
	t, ok := readTokenAccount(address, list[0])
	if !ok {
		return t, mismatch(address, "kind", "%s, which config.toml names, is not a token account", address)
	}
	if why := t.whyNotSpendable(s.agent, s.mint, s.program); why != nil {
		return t, why
	}
	return t, nil
}

// found is the best of the accounts that are delegated to the agent, or its own.
func (s sources) found(ctx context.Context) (tokenAccount, error) {
	delegated, err := s.delegated(ctx)
	if err != nil {
		return tokenAccount{}, err
	}
	var best, frozen *tokenAccount
	for i, t := range delegated {
		switch {
		case t.frozen:
			frozen = &delegated[i]
		case best == nil:
			best = &delegated[i]
		}
	}
	if best != nil && best.spendable(s.agent) > 0 {
		return *best, nil
	}
	own, err := s.own(ctx)
	switch {
	case x402.HasCode(err, x402.RPCError): // not a zero
		return own, err
	case err == nil && own.spendable(s.agent) > 0:
		return own, nil
	case best != nil: // nothing anywhere: the delegation is the one that is exhausted
		return *best, nil
	case frozen != nil:
		return *frozen, frozen.whyNotSpendable(s.agent, s.mint, s.program)
	}
	return own, err
}

// delegated lists the mint's accounts whose delegate is the agent, the most spendable first. The
// node's word is checked: what does not belong there is left out.
func (s sources) delegated(ctx context.Context) (list []tokenAccount, err error) {
	var answer struct {
		Value []struct {
			Pubkey  string
			Account *accountJSON
		}
	}
	const method = "getTokenAccountsByDelegate"
	err = s.node.Call(ctx, &answer, method, s.agent, map[string]any{"mint": s.mint},
		map[string]any{"commitment": confirmed, "encoding": "base64"})
	if err != nil {
		var failed *x402.Error
		if errors.As(err, &failed) {
			return nil, failed.WithHint("try again; or the person names the account to pay from as " +
				"token_account in config.toml, then this is not asked")
		}
		return nil, err
	}
	for _, v := range answer.Value {
		address, err := parseKey(v.Pubkey)
		if err != nil {
			return nil, s.node.Failed(method, err)
		}
		a, err := v.Account.read()
		if err != nil {
			return nil, s.node.Failed(method, err)
		}
		t, ok := readTokenAccount(address, a)
		if ok && t.delegatesTo(s.agent) && t.mint == s.mint && t.program == s.program {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b tokenAccount) int {
		return cmp.Or(cmp.Compare(b.spendable(s.agent), a.spendable(s.agent)),
			bytes.Compare(a.address[:], b.address[:]))
	})
	return list, nil
}

// own is the agent's associated token account. Its owner may have been changed, so it is looked at
// like any other.
func (s sources) own(ctx context.Context) (tokenAccount, error) {
	address, err := ata(s.agent, s.mint, s.program)
	if err != nil {
		return tokenAccount{}, err
	}
	list, err := s.node.accounts(ctx, address)
	if err != nil {
		return tokenAccount{}, err
	}
	t, ok := readTokenAccount(address, list[0])
	if !ok { // nothing was ever sent there
		return tokenAccount{address: address, program: s.program, mint: s.mint, owner: s.agent}, nil
	}
	if why := t.whyNotSpendable(s.agent, s.mint, s.program); why != nil {
		return t, why
	}
	return t, nil
}
