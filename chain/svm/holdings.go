package svm

import (
	"cmp"
	"context"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Holdings says which tokens the agent has something of, or is let spend, and how many lamports it has: one
// question for these, and two for each token program. Errors are Funds'.
func (e *Exact) Holdings(ctx context.Context, network string, tokens []x402.AssetInfo) (some []x402.AssetInfo,
	coin money.Amount, err error) {
	self, err := e.self()
	if err != nil {
		return nil, coin, err
	}
	n, err := e.node(network)
	if err != nil {
		return nil, coin, err
	}
	var lamports struct{ Value uint64 }
	err = n.Call(ctx, &lamports, "getBalance", self, map[string]any{"commitment": confirmed})
	if err != nil {
		return nil, coin, err
	}
	has := map[solana.PublicKey]bool{}
	for _, program := range []solana.PublicKey{tokenProgram, token2022} {
		for _, method := range []string{"getTokenAccountsByOwner", "getTokenAccountsByDelegate"} {
			list, err := n.tokenAccountsOf(ctx, method, self, map[string]any{"programId": program})
			if err != nil {
				return nil, coin, err
			}
			for _, t := range list {
				has[t.mint] = has[t.mint] || t.spendable(self) > 0
			}
		}
	}
	for _, token := range tokens {
		if mint, err := parseKey(token.Address); err == nil && has[mint] {
			some = append(some, token)
		}
	}
	return some, money.NewAmount(lamports.Value), nil
}

// tokenAccountsOf are the token accounts that a method finds for a key.
func (n *node) tokenAccountsOf(ctx context.Context, method string, key solana.PublicKey,
	filter map[string]any) (list []tokenAccount, err error) {
	var answer struct {
		Value []struct {
			Pubkey  string
			Account *accountJSON
		}
	}
	if err := n.Call(ctx, &answer, method, key, filter, asBase64); err != nil {
		return nil, err
	}
	for _, v := range answer.Value {
		address, errKey := parseKey(v.Pubkey)
		a, errAccount := v.Account.read()
		if err := cmp.Or(errKey, errAccount); err != nil {
			return nil, n.Failed(method, err)
		}
		if t, ok := readTokenAccount(address, a); ok {
			list = append(list, t)
		}
	}
	return list, nil
}
