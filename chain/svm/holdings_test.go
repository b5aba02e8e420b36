package svm

import (
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What the agent owns and what is delegated to it, under both token programs, with one question each.
func TestHoldings(t *testing.T) {
	agent := keyOf(person(1))
	tokens := []x402.AssetInfo{usdc}
	for name, test := range map[string]struct {
		owned, delegated *token
		has              bool
	}{
		"nothing":          {nil, nil, false},
		"owned":            {&token{mint: mint, owner: agent, amount: 5}, nil, true},
		"owned, and empty": {&token{mint: mint, owner: agent}, nil, false},
		"delegated": {nil, &token{mint: mint, owner: keyOf(owner), delegate: agent, amount: 9, delegated: 5},
			true},
		"delegated, of an empty account": {nil, &token{mint: mint, owner: keyOf(owner), delegate: agent,
			delegated: 5}, false},
		"of another mint":        {&token{mint: keyOf(seller), owner: agent, amount: 5}, nil, false},
		"somebody else's, a lie": {&token{mint: mint, owner: keyOf(owner), amount: 5}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, _ := newWallet(t)
			c.lamports, c.delegated = 42, nil
			if test.owned != nil {
				c.owned = []solana.PublicKey{c.put(keyOf(person(7)), *test.owned)}
			}
			if test.delegated != nil {
				c.delegated = []solana.PublicKey{c.put(keyOf(person(8)), *test.delegated)}
			}
			some, coin, err := e.Holdings(t.Context(), devnet, tokens)
			require.NoError(t, err)
			require.Equal(t, money.NewAmount(42), coin)
			require.Equal(t, test.has, len(some) == 1)
			require.Equal(t, []int{1, 2, 2}, []int{c.asked["getBalance"], c.asked["getTokenAccountsByOwner"],
				c.asked["getTokenAccountsByDelegate"]})
		})
	}
	for _, method := range []string{"getBalance", "getTokenAccountsByOwner", "getTokenAccountsByDelegate"} {
		e, c, _ := newWallet(t)
		c.lies[method] = rpcFault{-32005, "busy"}
		_, _, err := e.Holdings(t.Context(), devnet, tokens)
		requireCode(t, x402.RPCError, err)
	}
}
